"""`python -m tests.golden`: keeps what the present rules decide; refused where that has been done."""

import sys

from tests.golden import record

if __name__ == "__main__":
    try:
        record()
    except FileExistsError as error:
        sys.exit(str(error))
