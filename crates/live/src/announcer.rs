//! Tells the run's congestion controls of handovers to come.

use std::sync::Arc;

use skyhop_cc::Handover;
use skyhop_kernel::{Scope, SignalMap, netns_cookie};
use skyhop_signal::Announcement;

use crate::clock::{RunClock, Stop, sleep_until, wake_precisely};
use crate::error::{During, LiveError};
use crate::namespace::NetNamespace;
use crate::traffic::{Worker, join, spawn};

/// Announces on a thread of its own, so that nothing else makes it late.
pub(crate) struct RunningAnnouncer {
    worker: Option<Worker<()>>,
}

impl RunningAnnouncer {
    /// Starts where there is something to announce and somebody to hear it: the connections of the
    /// run's namespaces that look into one of `maps`.
    pub(crate) fn start(
        announcements: &[Announcement],
        maps: Vec<SignalMap>,
        namespaces: &[Arc<NetNamespace>],
        clock: RunClock,
        stop: &Arc<Stop>,
    ) -> Result<Self, LiveError> {
        if announcements.is_empty() || maps.is_empty() {
            return Ok(Self { worker: None });
        }
        let scopes = namespaces.iter().map(|namespace| scope(namespace));
        let scopes = scopes.collect::<Result<Vec<Scope>, _>>()?;
        let (announcements, stop) = (announcements.to_vec(), Arc::clone(stop));
        let worker = spawn("announcer".to_owned(), move || {
            wake_precisely()?;
            for announcement in announcements {
                if !sleep_until(clock, announcement.announced, &stop)? {
                    break;
                }
                announce(&announcement, &maps, &scopes, clock)?;
            }
            Ok(())
        })?;
        Ok(Self { worker: Some(worker) })
    }

    /// Waits for its end.
    pub(crate) fn join(self) -> Result<(), LiveError> {
        self.worker.map_or(Ok(()), join)
    }
}

fn scope(namespace: &NetNamespace) -> Result<Scope, LiveError> {
    let cookie = namespace
        .inside(|| netns_cookie().during("cannot read the cookie of a network namespace"))?;
    Ok(Scope { netns_cookie: cookie, destination: None })
}

fn announce(
    announcement: &Announcement,
    maps: &[SignalMap],
    scopes: &[Scope],
    clock: RunClock,
) -> Result<(), LiveError> {
    let at = clock.absolute(announcement.at);
    let handover = Handover {
        at_ns: at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64,
        outage_ns: announcement.outage.as_nanos(),
        error_ns: announcement.error.as_nanos(),
        kind: announcement.kind as u32,
        valid: 1,
    };
    for map in maps {
        for scope in scopes {
            map.announce(*scope, &handover).during("cannot announce a handover")?;
        }
    }
    Ok(())
}
