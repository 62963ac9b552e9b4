"""The `isthmus` command as a file that Spark can submit (deploy/k8s/sparkapplication.yaml)."""

from isthmus.cli.app import main

if __name__ == "__main__":
    main()
