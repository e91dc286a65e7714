//! Packets of a capture, and the interfaces at which they are seen.

use serde::{Deserialize, Serialize};
use skyhop_units::Instant;

/// Packet that was seen at an interface of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedPacket {
    /// Time of the run.
    pub at: Instant,
    /// Number of the interface; see [`LinkEnd`].
    pub interface: u32,
    /// Whether the packet leaves the host or router at this interface.
    pub outbound: bool,
    /// Size of the IP packet in bytes.
    pub ip_bytes: u32,
    /// Headers of the packet; the payload is not captured.
    pub headers: Vec<u8>,
    /// Fate of the packet, such as its loss and the reason.
    pub comment: Option<String>,
}

/// Interface of a capture: an end of a link, or the place of the packets that the link loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// First end, which the direction back leads to.
    From,
    /// Second end, which the direction forward leads to.
    To,
    /// Place between both ends.
    Lost,
}

impl LinkEnd {
    /// All interfaces of a link, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::From, Self::To, Self::Lost];

    /// Number of this interface of the link with the given number.
    pub const fn interface(self, link: u32) -> u32 {
        Self::ALL.len() as u32 * link + self as u32
    }

    /// Name of this interface of a link.
    pub fn name(self, link: &str) -> String {
        let end = match self {
            Self::From => "from",
            Self::To => "to",
            Self::Lost => "lost",
        };
        format!("{link} {end}")
    }
}
