"""What `largesse doctor` looks at: this machine, a cell by its gateway, and the bus that the cell is on."""
