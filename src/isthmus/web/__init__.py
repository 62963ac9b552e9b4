"""The web page: flows as `isthmus status` knows them, in a browser. Only this package knows starlette and uvicorn."""
