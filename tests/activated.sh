#!/bin/sh
# Runs a command as a user would who typed `source build/activate`.   activated.sh BUILD COMMAND...
. "$1/activate"
shift
exec "$@"
