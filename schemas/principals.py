"""As whom processes come to a Kafka cluster that asks: one principal a service, and who else there is.

Which topics each reads and writes stands with the topics (topics.py); instances and standbys of a service are one
principal.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """`party`: what the table of topics calls it. `about`: whose it is, and what for. `transactions`: it may use
    transactions, under ids that begin with its name."""

    name: str
    party: str
    about: str
    transactions: bool = False


_SERVICES = (
    ("admission", "writes the log"),
    ("fairness", "decides shares"),
    ("altruism", "decides what is asked for"),
    ("leftover", "decides what starts where"),
    ("estimator", "forecasts releases"),
    ("planner", "plans reservations, and renews series"),
    ("gateway", "serves HTTP, and passes on what is asked for there"),
    ("agent", "reports for a node; all nodes are one principal"),
    ("bridge", "reports for nodes over MQTT"),
    ("router", "chooses cells for jobs that name none"),
)

PRINCIPALS = (
    *(Principal(name, name, f"the service: {about}") for name, about in _SERVICES),
    Principal("client", "clients", "any other program that publishes jobs and reservations", transactions=True),
    Principal("reader", "readers", "`largesse replay`, `tail`, `why` and the like on `kafka://`: reads, and no more"),
    Principal(
        "operator", "operators", "who makes tokens past the gateway (`token make --bus`), and writes configs to the bus"
    ),
)

BY_PRINCIPAL = {principal.name: principal for principal in PRINCIPALS}
