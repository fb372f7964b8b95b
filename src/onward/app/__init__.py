"""The Python surface: open a store, register handlers, run pipelines. Begin with `application`.

app = Onward("runs.db")

@app.handler("greet")
async def greet(step):
    return {"greeting": f"hello {step.get('name')}"}

async with app:
    run = await app.run("hello.dot", inputs={"name": "you"})

`Onward` is one class in four layers, each in its module: `registrations`, `store`, `queue`, `application`.
"""

from onward.app.application import Onward

__all__ = ["Onward"]
