"""What comes from outside: strict JSON, one model for each kind of input, errors that name the field and the fix."""
