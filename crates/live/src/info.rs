//! What run.json says of a live run alone.

use serde::{Deserialize, Serialize};
use skyhop_model::LinuxLink;
use skyhop_record::Quantiles;

use skyhop_host::{DeviceKind, Program};

use crate::Guest;

/// What run.json says of a live run alone: how it was done, and how well time was kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LiveInfo {
    /// What carried packets between the kernel and the link.
    pub device: DeviceKind,
    /// In a guest: what carried packets between the two ends, "skyhop" or "tc" …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinuxLink>,
    /// … and what stood against "tc" where the scenario left the choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_because: Option<String>,
    /// The program that made the traffic.
    pub program: Option<Program>,
    /// The congestion control of sockets that choose none; `None` without a program.
    pub default_cc: Option<String>,
    /// Whether the end `to` reached the net that this machine is in.
    pub internet: bool,
    /// The kernel in virtual time that it was run in, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Guest>,
    /// The client's exit status, 128 + signal where a signal ended it; `None` without a program.
    pub program_status: Option<i32>,
    /// What the programs printed; `None` without one.
    pub printed: Option<Printed>,
    /// How well the machine kept up.
    pub timing: Timing,
    /// Every packet's whereabouts.
    pub packets: Directions,
}

/// What programs printed: standard output and standard error as they came, at most 64 kB of each program; the middle
/// is left out where there is more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// The client.
    pub client: String,
    /// The server.
    pub server: String,
}

/// Every packet's whereabouts, in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directions {
    /// from -> to.
    pub forward: PacketCount,
    /// to -> from.
    pub back: PacketCount,
}

/// How well the machine kept up with the wall clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// CPU time that the hypervisor gave to others, summed over the cores.
    pub steal_s: f64,
    /// Whole seconds of the run.
    pub seconds: u64,
    /// How many of those saw no CPU steal.
    pub quiet_seconds: u64,
    /// Lateness of packets in the seconds without steal; `None` where there were none.
    pub quiet_lateness_us: Option<Quantiles>,
    /// CPU time of the engine with its traffic, without a program's.
    pub cpu_s: f64,
    /// Whether the engine busy-waited before packets were due.
    pub spin: bool,
}

/// Where the packets of one direction went, once the link had been left to run empty.
///
/// What the namespace sent is `device_sent + device_drops`; `device_sent = enqueued`, `enqueued = delivered + dropped + inside`, and
/// `delivered = device_received + refused`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCount {
    /// Packets that were read from the sending namespace's device, by the kernel's own count; where Linux's disciplines
    /// are the link, those that its queue was given.
    pub device_sent: u64,
    /// Packets that the device dropped before the link could read them.
    pub device_drops: u64,
    /// Packets that the link took.
    pub enqueued: u64,
    /// Packets that the link lost, for all reasons.
    pub dropped: u64,
    /// Packets that were still inside when the engine stopped.
    pub inside: u64,
    /// Packets that came out of the link.
    pub delivered: u64,
    /// Packets that the receiving device refused.
    pub refused: u64,
    /// Packets that the receiving namespace got, by the kernel's own count.
    pub device_received: u64,
    /// UDP datagrams of programs that the link was given.
    pub udp_sent: u64,
    /// Those of them that came out of it.
    pub udp_delivered: u64,
}
