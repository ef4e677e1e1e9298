"""Why jobs, tasks, reservations, queues and nodes are as they are: answers about one state of the view.

Nothing here changes the view, and whoever has a view can ask: a gateway, or what folds a log up to a moment.
"""
