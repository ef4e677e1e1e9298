#!/bin/sh
# Submits the job of this night, named after its date: a name can be used once in 7 days, and each night is a job of its
# own. Started by cron (0 2 * * *) or by the systemd timer beside this file, as the owner of the reservation.
# Sent again on the same day, it changes nothing. Not 0 means that the cell did not take the job: cron mails what it says.
set -eu
export LARGESSE_USER="${LARGESSE_USER:-ann}" TZ="${TZ:-Europe/Berlin}"
exec largesse submit "$(dirname "$0")/report.yaml" --name "report-$(date +%F)"
