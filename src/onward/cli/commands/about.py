"""`onward version` and `completion`: the program itself, and completion for a shell.

Each completion script asks `onward __complete INDEX WORD...` what can stand at the cursor. Shells run
`completion` when they start, so this is apart from what takes time to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onward.cli.options import COMMON, Common, Out
from onward.cli.output import FINE
from onward.version import VERSION

if TYPE_CHECKING:
    from onward.cli.replies import CompletionShown, VersionShown


def version(*, common: Common = COMMON, out: Out) -> int:
    """Print the version."""
    if out.is_json:
        shown: VersionShown = {"version": VERSION}
        out.value(shown)
    else:
        out.say(f"onward {VERSION}")
    return FINE


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell to complete in.")],
    /,
    *,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print a completion script for a shell; save it where the shell looks for it, as in the examples.

    It completes commands, flags and their values, files, and the runs of the database.
    """
    script = SCRIPTS[shell]
    if out.is_json:
        shown: CompletionShown = {"shell": shell, "script": script}
        out.value(shown)
    else:
        out.say(script, end="")
    return FINE


BASH = r"""# Completion of onward in bash, 3.2 or newer.
_onward() {
  local cur="${COMP_WORDS[COMP_CWORD]}" kind="" line
  [[ "$cur" == "=" ]] && cur=""
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ -z "$kind" ]]; then kind="$line"; else COMPREPLY+=("${line%%$'\t'*}"); fi
  done < <("${COMP_WORDS[0]}" __complete "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null)
  local action=""
  [[ "$kind" == files ]] && action=-f
  [[ "$kind" == directories ]] && action=-d
  [[ -z "$action" ]] && return
  compopt -o filenames 2>/dev/null
  while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$action" -- "$cur")
}
complete -F _onward onward
"""

ZSH = r"""#compdef onward
# Completion of onward in zsh.
_onward() {
  local -a lines found
  local line kind
  lines=("${(@f)$("${words[1]}" __complete $((CURRENT - 1)) "${(@)words}" 2>/dev/null)}")
  kind="$lines[1]"
  for line in "${(@)lines[2,-1]}"; do
    found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  compset -P '--*='
  (( $#found )) && _describe -V 'onward' found
  [[ "$kind" == files ]] && _files
  [[ "$kind" == directories ]] && _files -/
  return 0
}
if [[ "$funcstack[1]" == _onward ]]; then _onward "$@"; else compdef _onward onward; fi
"""

FISH = r"""# Completion of onward in fish.
function __onward_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines ($words[1] __complete (count $words) $words "$current" 2>/dev/null)
    set -l before (string match -r -- '^--[^=]*=' "$current")
    for line in $lines[2..-1]
        echo -- "$before$line"
    end
    set -l rest (string replace -r -- '^--[^=]*=' '' "$current")
    switch "$lines[1]"
        case files
            for path in (__fish_complete_path "$rest")
                echo -- "$before$path"
            end
        case directories
            for path in (__fish_complete_directories "$rest" '')
                echo -- "$before$path"
            end
    end
end
complete -c onward -f -a '(__onward_complete)'
"""

SCRIPTS: Mapping[str, str] = {"bash": BASH, "zsh": ZSH, "fish": FISH}
