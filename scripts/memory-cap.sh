# shellcheck shell=bash disable=SC2034
# A memory cgroup for one command, version 1 or 2.  Sourced by bash scripts.
#
#   cap_open BYTES   make a group with this limit and no swap.  Fails where the
#                    machine gives us none; cap_why then says why.
#   cap_enter        move this subshell into it
#   cap_oom_kills    print how many processes of the group ran into the limit
#   cap_close        remove the group
#
# cap_kind is v1 or v2 between cap_open and cap_close, else empty.

cap_kind='' cap_dir='' cap_why='no memory cgroup on this machine'

# The mount point of a hierarchy, by file system type and a word of its options.
cap_mount() {
	local _ point options type super
	while read -r _ _ _ _ point options; do
		type=${options##* - }
		super=${type##* }
		type=${type%% *}
		if [ "$type" = "$1" ] && [[ ,$super, == *,$2,* ]]; then
			echo "$point"
			return
		fi
	done </proc/self/mountinfo
	return 1
}

# This shell's group in a hierarchy, by the controllers' field of /proc/self/cgroup.
cap_own() {
	local controllers path
	while IFS=: read -r _ controllers path; do
		if [[ ,$controllers, == *,$1,* ]]; then
			echo "${path%/}"
			return
		fi
	done </proc/self/cgroup
}

cap_write() { # FILE VALUE
	{ echo "$2" >"$1"; } 2>/dev/null
}

# A group below the one given, with its limits set.
cap_make() { # KIND PARENT BYTES
	local dir=$2/soda-$$
	mkdir "$dir" 2>/dev/null || return
	if [ "$1" = v1 ]; then
		cap_write "$dir/memory.limit_in_bytes" "$3" && {
			[ ! -e "$dir/memory.memsw.limit_in_bytes" ] ||
				cap_write "$dir/memory.memsw.limit_in_bytes" "$3" || true
		}
	else
		cap_write "$dir/memory.max" "$3" && {
			[ ! -e "$dir/memory.swap.max" ] || cap_write "$dir/memory.swap.max" 0 || true
		}
	fi && (cap_write "$dir/cgroup.procs" "$BASHPID") && {
		cap_kind=$1 cap_dir=$dir
		return
	}
	rmdir "$dir"
	return 1
}

cap_open_v1() { # BYTES
	local mount own
	mount=$(cap_mount cgroup memory) || return
	own=$(cap_own memory)
	cap_make v1 "$mount$own" "$1" || cap_make v1 "$mount" "$1"
}

# Processes and controlled children exclude each other below the root: our own
# group serves only where it is the root or has been delegated to us alone.
cap_enable_v2() { # PARENT
	local procs
	grep -qsw memory "$1/cgroup.controllers" || return
	grep -qsw memory "$1/cgroup.subtree_control" && return
	cap_write "$1/cgroup.subtree_control" +memory && return
	mapfile -t procs 2>/dev/null <"$1/cgroup.procs" || return
	[ "${procs[*]}" = $$ ] || return
	mkdir -p "$1/soda-shell" && cap_write "$1/soda-shell/cgroup.procs" $$ &&
		cap_write "$1/cgroup.subtree_control" +memory
}

cap_open_v2() { # BYTES
	local mount own parent
	mount=$(cap_mount cgroup2 rw) || return
	own=$(cap_own '')
	for parent in "$mount$own" "$mount$(dirname "$own/")" "$mount"; do
		parent=${parent%/}
		cap_enable_v2 "$parent" && cap_make v2 "$parent" "$1" && return
	done
	return 1
}

cap_open() { # BYTES
	cap_open_v1 "$1" || cap_open_v2 "$1" && return
	[ "$(id -u)" = 0 ] || cap_why='making a memory cgroup needs root or a delegated group'
	return 1
}

cap_enter() {
	[ -z "$cap_kind" ] || echo "$BASHPID" >"$cap_dir/cgroup.procs" || exit 1
}

cap_oom_kills() {
	local file=memory.events key value
	[ "$cap_kind" != v1 ] || file=memory.oom_control
	while read -r key value; do
		[ "$key" != oom_kill ] || { echo "$value"; return; }
	done <"$cap_dir/$file"
	echo 0
}

cap_close() {
	local _
	[ -n "$cap_kind" ] || return 0
	# The kernel lets go of a group a moment after its last process.
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		rmdir "$cap_dir" 2>/dev/null && break
		sleep 0.1
	done
	cap_kind='' cap_dir=''
}
