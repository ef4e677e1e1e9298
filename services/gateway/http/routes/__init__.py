"""Routes of the API by what they are about; those of jobs and their output are in `app`."""
