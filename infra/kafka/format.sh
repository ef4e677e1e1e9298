#!/bin/bash
# Formats the broker's storage with its users, once. Later users and passwords: kafka-configs.sh (docs/kafka.md).
set -euo pipefail
data=/var/lib/kafka/data
test -e "$data/meta.properties" && exit
cat >/tmp/server.properties <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
controller.listener.names=CONTROLLER
listeners=INSIDE://:9092,CONTROLLER://127.0.0.1:9093
listener.security.protocol.map=INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INSIDE
log.dirs=$data
PROPERTIES
users=()
while read -r user; do users+=(--add-scram "$user"); done </run/largesse/users
/opt/kafka/bin/kafka-storage.sh format --cluster-id "$CLUSTER_ID" --config /tmp/server.properties "${users[@]}"
