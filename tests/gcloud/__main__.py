"""`python -m tests.gcloud PROGRAM ARGUMENT …`: one command, answered by the simulator that the environment names."""

import asyncio
import os
import sys

import msgspec

from tests.gcloud.stand_in import Google, answer

VARIABLE = "STAND_IN_GOOGLE"


def main() -> int:
    google = msgspec.json.decode(os.environ[VARIABLE].encode(), type=Google)
    got = asyncio.run(answer(google, sys.argv[1], sys.argv[2:]))
    sys.stdout.write(got.out)
    sys.stderr.write(got.err)
    return got.code


if __name__ == "__main__":
    sys.exit(main())
