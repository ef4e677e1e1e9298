"""The levels of a tree of queues, by progressive filling, and how they are kept from one filling to the next."""
