//! Congestion controls in the running kernel.
//!
//! They get there in one of two ways, which a run need not know: through BPF (`bpf/`), or as a module of the
//! kernel's own build that somebody has put into it (`module_file.rs`), as in guests, whose kernels have no struct_ops.
//!
//! [`load`] registers a module of `cc/` with the kernel's TCP and pins it under the BPF file system, so
//! that it outlives the caller, until [`unload`]. [`hold`] registers one for as long as the caller
//! lives, under a name of its own. [`list`] says what there is and who uses it; [`check`] asks the
//! verifier and registers nothing. [`SignalMap`] hands announced handovers to a registered module,
//! [`PhaseReader`] reads what its connections do about them,
//! [`ReportReader`] what they report to whoever decides for them.
//!
//! For BPF the kernel has to take congestion controls from there (struct_ops) and to say what its structs look
//! like (BTF). Before 6.4 there are no links: the registration itself is what stays, and is removed by
//! its map.

#![cfg_attr(
    not(feature = "libbpf"),
    allow(dead_code, reason = "what only loading needs stays where it is read about")
)]

use skyhop_cc::bindings::SignalKey;
use skyhop_cc::{Caller, MapValue as _, bindings};

mod census;
mod entry;
mod error;
mod held;
mod module_file;
mod names;
mod pins;
mod privilege;
mod sock_diag;
mod ticks;

#[cfg(feature = "libbpf")]
mod bpf;
#[cfg(not(feature = "libbpf"))]
#[path = "without_libbpf.rs"]
mod bpf;

pub use bpf::{check, load, unload};
pub use census::{netns_cookie, sockets_by_cc};
pub use entry::{Entry, Status, has_own, list, loaded_name, offered};
pub use error::KernelError;
pub use held::{
    DecisionMaps, Held, PhaseReader, ReportReader, SignalMap, compile, hold, hold_as,
    pinned_phases, pinned_signal_maps,
};
pub use names::module_of;
pub use sock_diag::{Ask, SocketDump, SocketEnds, TcpSocket};
pub use ticks::ticks_per_second;

/// What the kernel's TCP does for a module: it has no `get_info` for those that come from BPF.
pub const CALLER: Caller = Caller { name: "the kernel", calls: Caller::LINUX_CALLS, has_ecn: true };

/// One hook of a module, as the verifier saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramReport {
    /// The hook's function.
    pub name: String,
    /// Its BPF instructions.
    pub instructions: u32,
    /// How many the verifier looked at, on all ways through it; `None` where the kernel (before 5.16)
    /// does not say.
    pub verified: Option<u32>,
}

/// A module that has been loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// What programs give to `TCP_CONGESTION`.
    pub kernel_name: String,
    /// Whether the BPF file system had to be mounted for it.
    pub mounted_bpffs: bool,
}

/// A module that has been unloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unloaded {
    /// The name that is gone.
    pub kernel_name: String,
    /// Sockets that use it still, and keep it until they are closed; `None` where the kernel does not say.
    pub sockets: Option<u64>,
}

/// What a connection says that it does about a handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// The connection's network namespace.
    pub netns_cookie: u64,
    /// Its port at this end.
    pub local_port: u16,
    /// Its port at the other.
    pub remote_port: u16,
    /// What it does, on `CLOCK_MONOTONIC`.
    pub phase: skyhop_cc::Phase,
}

impl Told {
    /// Reads a `struct skyhop_told`; nothing where it is of another version.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let told = bindings::Told::from_bytes(bytes)?;
        Some(Self {
            netns_cookie: told.netns_cookie,
            local_port: told.local_port,
            remote_port: u16::from_be(told.remote_port),
            phase: told.phase.known()?,
        })
    }
}

/// Whom an announcement is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// The network namespace, by its cookie.
    pub netns_cookie: u64,
    /// Only connections to this IPv4 prefix: address and length in bits.
    pub destination: Option<(std::net::Ipv4Addr, u8)>,
}

impl Scope {
    /// Bits of the key that name the network namespace.
    const COOKIE_BITS: u32 = 64;

    /// What the modules look for.
    pub(crate) fn key(self) -> SignalKey {
        let (address, bits) =
            self.destination.map_or(([0; 4], 0), |(ip, bits)| (ip.octets(), bits));
        SignalKey {
            prefix_bits: Self::COOKIE_BITS + u32::from(bits),
            netns_cookie: self.netns_cookie.to_ne_bytes(),
            ipv4: address,
        }
    }
}
