//! The traffic that skyhop makes itself: bulk TCP flows and UDP probes, each on threads of its own.

pub(crate) mod bulk;
pub(crate) mod plan;
pub(crate) mod probe;

use skyhop_model::End;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::clock::{RunClock, Stop};
use crate::error::{During, LiveError};
use crate::namespace::NetNamespace;

/// The address of an end.
pub(crate) const fn address(end: End) -> Ipv4Addr {
    match end {
        End::From => Ipv4Addr::new(10, 73, 0, 1),
        End::To => Ipv4Addr::new(10, 73, 0, 2),
    }
}

/// Where traffic is made and when it ends.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) near: Arc<NetNamespace>,
    pub(crate) far: Arc<NetNamespace>,
    pub(crate) clock: RunClock,
    /// Set when nothing more shall be sent.
    pub(crate) stop: Arc<Stop>,
    /// Set when nothing more will arrive.
    pub(crate) close: Arc<Stop>,
}

impl Stage {
    pub(crate) fn namespace(&self, end: End) -> &NetNamespace {
        match end {
            End::From => &self.near,
            End::To => &self.far,
        }
    }
}

/// A thread of the traffic.
pub(crate) type Worker<T> = JoinHandle<Result<T, LiveError>>;

pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> Result<T, LiveError> + Send + 'static,
) -> Result<Worker<T>, LiveError> {
    thread::Builder::new().name(name).spawn(work).during("cannot start a thread for traffic")
}

pub(crate) fn join<T>(worker: Worker<T>) -> Result<T, LiveError> {
    worker.join().unwrap_or_else(|_| {
        let action = "cannot go on".to_owned();
        Err(LiveError::System { action, reason: "a thread of the traffic panicked".to_owned() })
    })
}
