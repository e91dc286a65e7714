//! Traffic that skyhop generates itself: applications over TCP and UDP, each on threads of its own.

pub(crate) mod plan;
pub(crate) mod tcp;
pub(crate) mod udp;

use skyhop_model::End;
use std::net::Ipv4Addr;
use std::sync::Arc;

use skyhop_host::clock::{RunClock, Stop};
use skyhop_host::namespace::NetNamespace;

/// Choice of the two addresses of a connection; announcements select connections by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// Addresses of flows that cross the path, and of programs.
    Path,
    /// Addresses of flows whose routes do not cross the path.
    Elsewhere,
}

impl Addresses {
    const fn network(self) -> [u8; 4] {
        match self {
            Self::Path => [10, 73, 0, 0],
            Self::Elsewhere => [10, 73, 0, 4],
        }
    }

    /// Network prefix that contains both ends' addresses.
    pub(crate) fn prefix(self) -> (Ipv4Addr, u8) {
        (Ipv4Addr::from(self.network()), 30)
    }

    /// All IPv4 addresses of an end.
    pub(crate) fn all_of(end: End) -> [Ipv4Addr; 2] {
        [Self::Path, Self::Elsewhere].map(|one| one.of(end))
    }

    /// IPv4 address of an end in this network.
    pub(crate) const fn of(self, end: End) -> Ipv4Addr {
        let [a, b, c, d] = self.network();
        let host = match end {
            End::From => 1,
            End::To => 2,
        };
        Ipv4Addr::new(a, b, c, d + host)
    }
}

/// IPv4 address of an end on the path.
pub(crate) const fn address(end: End) -> Ipv4Addr {
    Addresses::Path.of(end)
}

/// Namespaces, clock and stop signals that all traffic of a run shares.
#[derive(Debug, Clone)]
pub(crate) struct Testbench {
    pub(crate) from: Arc<NetNamespace>,
    pub(crate) to: Arc<NetNamespace>,
    pub(crate) clock: RunClock,
    /// Signal that stops sending.
    pub(crate) stop: Arc<Stop>,
    /// Signal that no more packets will arrive; set after the link has drained.
    pub(crate) close: Arc<Stop>,
}

impl Testbench {
    pub(crate) fn namespace(&self, end: End) -> &NetNamespace {
        match end {
            End::From => &self.from,
            End::To => &self.to,
        }
    }
}
