"""Commands for whoever operates the database and the installation."""
