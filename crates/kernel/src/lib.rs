//! Loading of skyhop's and users' congestion controls into the running kernel.
//!
//! There are two ways to load a congestion control, which callers need not distinguish: through BPF (`bpf/`), or as
//! a kernel module that was built with the kernel and is already inserted (`module_file.rs`). The second is for
//! guests, whose kernels have no struct_ops.
//!
//! [`load`] registers a module of `cc/` with the kernel's TCP and pins it in the BPF file system, so that the module
//! stays loaded after the caller's end, until [`unload`]. [`register`] registers a module under a unique name for as
//! long as the caller lives. [`list`] returns the congestion controls and their numbers of sockets; [`check`] runs
//! the verifier and registers nothing. [`SignalMap`] passes announced handovers to a registered module,
//! [`PhaseReader`] reads the phases with which the module's connections react to handovers, and [`ReportReader`]
//! reads the reports that the connections send to an external policy.
//!
//! BPF requires a kernel with struct_ops for congestion controls and with type information (BTF). Before Linux 6.4
//! struct_ops have no links: the registration persists by itself and is removed through its map.

#![cfg_attr(
    not(feature = "libbpf"),
    allow(dead_code, reason = "code that only loading uses stays next to the rest")
)]

use skyhop_cc::bindings::SignalKey;
use skyhop_cc::{Caller, MapValue as _, bindings};

mod census;
mod entry;
mod error;
mod module_file;
mod names;
mod pins;
mod privilege;
mod registered;
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
pub use names::module_of;
pub use registered::{
    DecisionMaps, PhaseReader, RegisteredModule, ReportReader, SignalMap, compile, pinned_phases,
    pinned_signal_maps, register, register_as,
};
pub use sock_diag::{DestroyEvents, SocketDetail, SocketDump, TcpSocket};
pub use ticks::ticks_per_second;

/// Hooks that the kernel's TCP calls: all except `get_info`, which BPF modules cannot provide.
pub const CALLER: Caller = Caller { name: "the kernel", calls: Caller::LINUX_CALLS, has_ecn: true };

/// Verifier's report about one hook of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramReport {
    /// Name of the hook's function.
    pub name: String,
    /// Number of the hook's BPF instructions.
    pub instructions: u32,
    /// Number of instructions that the verifier processed, over all paths; `None` before Linux 5.16, which does not
    /// report it.
    pub verified: Option<u32>,
}

/// Result of loading a module by [`load`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Name for the socket option `TCP_CONGESTION`.
    pub kernel_name: String,
    /// Whether [`load`] mounted the BPF file system.
    pub mounted_bpffs: bool,
}

/// Result of unloading a module by [`unload`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unloaded {
    /// Name under which the module was registered.
    pub kernel_name: String,
    /// Number of sockets that still use the module, until they are closed; `None` if the kernel
    /// does not report the number.
    pub sockets: Option<u64>,
}

/// Phase that a connection reports for an announced handover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseEvent {
    /// Cookie of the connection's network namespace.
    pub netns_cookie: u64,
    /// Local port of the connection.
    pub local_port: u16,
    /// Remote port of the connection.
    pub remote_port: u16,
    /// Phase with its times on `CLOCK_MONOTONIC`.
    pub phase: skyhop_cc::Phase,
}

impl PhaseEvent {
    /// Parse a `struct skyhop_told`; `None` if the struct is of another version.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let event = bindings::Told::from_bytes(bytes)?;
        Some(Self {
            netns_cookie: event.netns_cookie,
            local_port: event.local_port,
            remote_port: u16::from_be(event.remote_port),
            phase: event.phase.to_phase()?,
        })
    }
}

/// Set of connections that an announcement addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// Cookie of the network namespace.
    pub netns_cookie: u64,
    /// Destination prefix of the connections, IPv4 address and length in bits; `None`: all connections.
    pub destination: Option<(std::net::Ipv4Addr, u8)>,
}

impl Scope {
    /// Number of bits of the map's key that contain the namespace's cookie.
    const COOKIE_BITS: u32 = 64;

    /// Key of the map in which modules look up announcements.
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
