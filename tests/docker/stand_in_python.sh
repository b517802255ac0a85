#!/usr/bin/env bash
# Make a stand-in for python:3.11-slim-bookworm out of Debian's packages, where no registry of images
# can be reached:   tests/docker/stand_in_python.sh TAG   (as root, with debootstrap; three minutes)
# It takes packages from where this machine takes them, and trusts whom it trusts.
set -euo pipefail
tag=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources)
debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,python3-dev,ca-certificates \
    bookworm "$root" "$mirror" >"$root.log" || { tail -20 "$root.log" >&2; exit 1; }
rm "$root.log"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/"
: >"$root/etc/apt/sources.list"
for settings in /etc/apt/apt.conf.d/99*; do
    [ ! -e "$settings" ] || cp "$settings" "$root/etc/apt/apt.conf.d/"
done
ln -sf /usr/bin/python3 "$root/usr/local/bin/python"
ln -sf /usr/bin/python3 "$root/usr/local/bin/python3"
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/var/cache/apt/archives/*.deb
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$root/etc/pip.conf"
tar -C "$root" -c . | docker import \
    -c 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin' - "$tag"
