//! Fields of run.json that only live runs have.

use serde::{Deserialize, Serialize};
use skyhop_model::LinuxLink;
use skyhop_record::Quantiles;

use skyhop_host::{DeviceKind, Program};

use crate::Guest;

/// Engine section of a live run's run.json: how the run was executed, and how precisely it was timed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LiveInfo {
    /// Type of network device between the kernel and the link.
    pub device: DeviceKind,
    /// Link emulator of a run in a guest: "skyhop" or "tc".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinuxLink>,
    /// Reason why the link emulator was not "tc", if the scenario has `linux.link = "auto"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_because: Option<String>,
    /// Program that generated the traffic; `None` if the scenario's flows did.
    pub program: Option<Program>,
    /// Congestion control of sockets that do not choose one; `None` without a program.
    pub default_cc: Option<String>,
    /// Whether the end `to` was connected to this machine's network.
    pub internet: bool,
    /// Guest kernel, in virtual time, on which the run was executed; `None` for a run on the host's kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Guest>,
    /// Exit status of the client, 128 + signal number if a signal ended it; `None` without a program.
    pub program_status: Option<i32>,
    /// Output of the programs; `None` without a program.
    pub printed: Option<Printed>,
    /// Timing precision of the run.
    pub timing: Timing,
    /// Packet counts of both directions.
    pub packets: Directions,
}

/// Output of the programs: standard output and standard error interleaved as written, at most 64 kB of each program;
/// the middle of longer output is omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// Output of the client program.
    pub client: String,
    /// Output of the server program.
    pub server: String,
}

/// Packet counts of both directions of the path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directions {
    /// Packets in the direction from -> to.
    pub forward: PacketCount,
    /// Packets in the direction to -> from.
    pub back: PacketCount,
}

/// Timing precision of a run against the wall clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// CPU steal, in s, summed over the cores: time that the hypervisor gave to other virtual machines.
    pub steal_s: f64,
    /// Number of whole seconds of the run.
    pub seconds: u64,
    /// Number of whole seconds without CPU steal.
    pub quiet_seconds: u64,
    /// Lateness of packets in the seconds without CPU steal, in us; `None` if there were no such seconds.
    pub quiet_lateness_us: Option<Quantiles>,
    /// CPU time of the engine and the traffic that it generates, without programs, in s.
    pub cpu_s: f64,
    /// Whether the engine busy-waited before packets were due.
    pub spin: bool,
}

/// Packet counts of one direction, after the link has been drained.
///
/// The sending namespace sent `device_sent + device_drops` packets; `device_sent = enqueued`,
/// `enqueued = delivered + dropped + inside`, and `delivered = device_received + refused`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCount {
    /// Packets read from the sending namespace's device, as the kernel counts them. If Linux's disciplines emulate
    /// the link: packets enqueued in them.
    pub device_sent: u64,
    /// Packets that the device dropped before the link could read them.
    pub device_drops: u64,
    /// Packets that entered the link.
    pub enqueued: u64,
    /// Packets that the link lost, for all reasons.
    pub dropped: u64,
    /// Packets that were still inside the link when the engine stopped.
    pub inside: u64,
    /// Packets that came out of the link.
    pub delivered: u64,
    /// Packets that the receiving device refused.
    pub refused: u64,
    /// Packets received by the receiving namespace, as the kernel counts them.
    pub device_received: u64,
    /// UDP datagrams of programs that entered the link.
    pub udp_sent: u64,
    /// UDP datagrams of programs that came out of the link.
    pub udp_delivered: u64,
}
