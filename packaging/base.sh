#!/usr/bin/env bash
# Makes a small tree to chroot into: the system's git, a shell and a few tools with the libraries that they load, and
# neither Rust nor anything of git-fence.
#
# usage: packaging/base.sh DIR
set -euo pipefail
dir=$1
mkdir -p "$dir"/{bin,dev,etc,proc,root,srv,tmp,usr/bin,usr/lib,usr/share}

# With every library that the dynamic linker would load for it.
add() {
    local file
    for file in "$@"; do
        [ -e "$dir$file" ] || { mkdir -p "$dir$(dirname "$file")" && cp -L "$file" "$dir$file"; }
        ldd "$file" 2>/dev/null | grep -oE '/[^ ]+' | while read -r library; do
            [ -e "$dir$library" ] || { mkdir -p "$dir$(dirname "$library")" && cp -L "$library" "$dir$library"; }
        done
    done
}

add /usr/bin/git /bin/sh /bin/sed /bin/grep /usr/bin/{basename,env,head,touch}
add /bin/{cat,chmod,cp,date,ls,mkdir,mv,rm,sleep,uname}
exec_path=$(/usr/bin/git --exec-path)
mkdir -p "$dir$exec_path"
for program in git-receive-pack git-upload-pack git-upload-archive git-sh-setup; do
    cp -a "$exec_path/$program" "$dir$exec_path/"
done
ln -sf /usr/bin/git "$dir$exec_path/git"
mkdir -p "$dir/usr/share/git-core/templates"
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$dir/etc/passwd"
