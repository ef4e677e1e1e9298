"""What every queue is guaranteed, holds, lends and borrows."""
