#!/usr/bin/env bash
# Installs what `make test-full` needs to run the agent as an ARM64 board would, on Debian 12 or newer: a tool that
# unpacks an ARM64 Debian without running it, an emulator of its processor, and a way to run programs in it as any user.
set -euo pipefail
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
fi
"${as_root[@]}" apt-get update
"${as_root[@]}" apt-get install --yes --no-install-recommends \
    debian-archive-keyring mmdebstrap proot qemu-user-static
