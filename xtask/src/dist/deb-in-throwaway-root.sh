#!/bin/sh
# Installs a Debian package in a copy of this system's files that lasts as long as this mount namespace:
# `deb-in-throwaway-root.sh PACKAGE FOLDER SCRIPT`. Runs SCRIPT there as the package's user, and purges the package. Exit code
# 77: this system is not Debian, or nothing can be mounted.
set -eu
package=$1 folder=$2 script=$3

dpkg --status adduser libc6 libgcc-s1 >/dev/null 2>&1 || exit 77
mount -t tmpfs tmpfs "$folder" || exit 77
mkdir "$folder/upper" "$folder/scratch" "$folder/merged"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/scratch" "$folder/merged" || exit 77
mount --rbind /dev "$folder/merged/dev"
mount --bind /proc "$folder/merged/proc"
mount -t tmpfs tmpfs "$folder/merged/tmp"
mount -t tmpfs tmpfs "$folder/merged/run"
cp "$package" "$folder/merged/tmp/tenure.deb"
printf '%s\n' "$script" >"$folder/merged/tmp/script.sh"
chmod 1777 "$folder/merged/tmp"
chmod 0755 "$folder/merged/tmp/script.sh"

chroot "$folder/merged" /bin/sh -eu <<'END'
cd /
PATH=/usr/sbin:/usr/bin:/sbin:/bin
unit=/usr/lib/systemd/system/tenure.service
# A tenure that this system has is not the one to test.
dpkg --status tenure >/dev/null 2>&1 && { echo "error: the package tenure is installed on this machine" >&2; exit 1; }

dpkg --install /tmp/tenure.deb >/tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
id tenure >/dev/null
grep -q '^User=tenure$' "$unit"
test "$(stat --format='%U:%G %a' /etc/tenure)" = 'root:tenure 750'
test -s /usr/share/man/man1/tenure.1.gz
if command -v systemd-analyze >/dev/null; then systemd-analyze verify "$unit"; fi
# What the unit does: the packaged configuration, as the packaged user.
TENURE_CONFIG=/etc/tenure/tenure.toml
export TENURE_CONFIG
setpriv --reuid=tenure --regid=tenure --clear-groups sh /tmp/script.sh /usr/bin/tenure

# Again, as an upgrade does it.
dpkg --install /tmp/tenure.deb >/tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
mkdir -p /var/lib/tenure
dpkg --purge tenure >/tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
for left in /usr/bin/tenure /etc/tenure /var/lib/tenure "$unit"; do
    test ! -e "$left" || { echo "error: purging leaves $left" >&2; exit 1; }
done
END
