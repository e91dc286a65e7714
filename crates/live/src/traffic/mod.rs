//! The traffic that skyhop makes itself: applications over TCP and UDP, each on threads of its own.

pub(crate) mod plan;
pub(crate) mod tcp;
pub(crate) mod udp;

use skyhop_model::End;
use std::net::Ipv4Addr;
use std::sync::Arc;

use skyhop_host::clock::{RunClock, Stop};
use skyhop_host::namespace::NetNamespace;

/// Which of an end's addresses a connection uses: announcements go by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// For what crosses the path, and for programs.
    Path,
    /// For flows whose routes do not.
    Elsewhere,
}

impl Addresses {
    const fn network(self) -> [u8; 4] {
        match self {
            Self::Path => [10, 73, 0, 0],
            Self::Elsewhere => [10, 73, 0, 4],
        }
    }

    /// The prefix of both ends' addresses.
    pub(crate) fn prefix(self) -> (Ipv4Addr, u8) {
        (Ipv4Addr::from(self.network()), 30)
    }

    /// All addresses of an end.
    pub(crate) fn all_of(end: End) -> [Ipv4Addr; 2] {
        [Self::Path, Self::Elsewhere].map(|one| one.of(end))
    }

    /// The address of an end.
    pub(crate) const fn of(self, end: End) -> Ipv4Addr {
        let [a, b, c, d] = self.network();
        let host = match end {
            End::From => 1,
            End::To => 2,
        };
        Ipv4Addr::new(a, b, c, d + host)
    }
}

/// The address of an end of the path.
pub(crate) const fn address(end: End) -> Ipv4Addr {
    Addresses::Path.of(end)
}

/// Where traffic is made and when it ends.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) from: Arc<NetNamespace>,
    pub(crate) to: Arc<NetNamespace>,
    pub(crate) clock: RunClock,
    /// Set when nothing more shall be sent.
    pub(crate) stop: Arc<Stop>,
    /// Set when nothing more will arrive.
    pub(crate) close: Arc<Stop>,
}

impl Stage {
    pub(crate) fn namespace(&self, end: End) -> &NetNamespace {
        match end {
            End::From => &self.from,
            End::To => &self.to,
        }
    }
}
