//! With `unsafe` code: what the system's scheduler goes by for the calling thread, which no crate reads or sets whole.

use std::io;

/// The policy, the nice value and the slice, among others (sched_setattr(2)).
pub(crate) use libc::sched_attr as Attributes;

/// The calling thread, as these calls name it.
const THIS_THREAD: libc::pid_t = 0;

/// Both calls have flags, of which there is none so far.
const NO_FLAGS: libc::c_uint = 0;

/// Reads it.
pub(crate) fn attributes() -> io::Result<Attributes> {
    let size = size_of::<Attributes>() as u32;
    let mut attributes = Attributes {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the pointer and the size are those of `attributes`, which outlives the call; the kernel writes at most so
    // many octets, and any octets are valid numbers.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, THIS_THREAD, &raw mut attributes, size, NO_FLAGS) };
    if result == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Sets it.
pub(crate) fn set_attributes(mut attributes: Attributes) -> io::Result<()> {
    attributes.size = size_of::<Attributes>() as u32;
    // SAFETY: the pointer is that of `attributes`, which outlives the call and says its own size; the kernel reads so many
    // octets, and writes to its size where it cannot do with that.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, THIS_THREAD, &raw mut attributes, NO_FLAGS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
