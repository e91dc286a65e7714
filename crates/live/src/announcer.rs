//! Announcer of a run: writes upcoming handovers to the run's congestion controls in the kernel.

use std::sync::Arc;

use skyhop_cc::Handover;
use skyhop_experiment::Experiment;
use skyhop_kernel::{KernelError, Scope, SignalMap, netns_cookie};
use skyhop_record::EventRow;
use skyhop_signal::blind::{BlindPlan, Estimate, Learner};
use skyhop_signal::{Agenda, Announcement, Statement};
use skyhop_units::Duration;
use tracing::{debug, info};

use crate::arrivals::Arrivals;
use crate::traffic::Addresses;
use skyhop_host::clock::{RunClock, Stop, minimize_timer_slack, sleep_until};
use skyhop_host::error::{Context, HostError};
use skyhop_host::namespace::NetNamespace;
use skyhop_host::thread::{Worker, join, spawn};

/// Interval at which packet arrivals are taken from the pump's queue.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Announcer on a thread of its own, so that other work does not delay announcements.
pub(crate) struct RunningAnnouncer {
    worker: Option<Worker<BlindResult>>,
}

/// Results of blind estimation: its announcements and the estimated grid.
#[derive(Debug, Default)]
pub(crate) struct BlindResult {
    /// Event rows of announcements that the experiment did not plan.
    pub(crate) rows: Vec<EventRow>,
    pub(crate) grid: Option<Estimate>,
}

impl RunningAnnouncer {
    /// Start the thread if there are announcements and `maps` to write them to, or if the run estimates handovers
    /// from `arrivals`. The announcements reach connections in the run's namespaces whose congestion control reads
    /// one of the `maps`.
    pub(crate) fn start(
        experiment: &Experiment,
        maps: Vec<SignalMap>,
        namespaces: &[Arc<NetNamespace>],
        clock: RunClock,
        stop: &Arc<Stop>,
        arrivals: &Arc<Arrivals>,
    ) -> Result<Self, HostError> {
        let announces_nothing = experiment.announcements.is_empty() || maps.is_empty();
        debug!(announcements = experiment.announcements.len(), receivers = maps.len(), "handovers");
        if announces_nothing && experiment.blind.is_none() {
            return Ok(Self { worker: None });
        }
        let scopes = namespaces.iter().map(|namespace| scope(namespace));
        let scopes = scopes.collect::<Result<Vec<Scope>, _>>()?;
        let announcer = Announcer { maps, scopes, clock, stop: Arc::clone(stop) };
        let (agenda, learner) = experiment.agenda();
        let (plan, arrivals) = (experiment.blind, Arc::clone(arrivals));
        let worker = spawn("announcer".to_owned(), move || {
            minimize_timer_slack()?;
            match plan.zip(learner) {
                Some((plan, learner)) => announcer.learn(agenda, plan, learner, &arrivals),
                None => announcer.announce_all(agenda).map(|()| BlindResult::default()),
            }
        })?;
        Ok(Self { worker: Some(worker) })
    }

    /// Wait for the thread to end.
    pub(crate) fn join(self) -> Result<BlindResult, HostError> {
        self.worker.map_or_else(|| Ok(BlindResult::default()), join)
    }
}

fn scope(namespace: &NetNamespace) -> Result<Scope, HostError> {
    let cookie = namespace
        .inside(|| netns_cookie().context("cannot read the cookie of a network namespace"))?;
    Ok(Scope { netns_cookie: cookie, destination: Some(Addresses::Path.prefix()) })
}

struct Announcer {
    maps: Vec<SignalMap>,
    scopes: Vec<Scope>,
    clock: RunClock,
    stop: Arc<Stop>,
}

impl Announcer {
    /// Make all announcements of the agenda, which does not depend on packet arrivals.
    fn announce_all(&self, mut agenda: Agenda) -> Result<(), HostError> {
        while let Some(next) = agenda.next() {
            if !sleep_until(self.clock, next, &self.stop)? {
                break;
            }
            while let Some(statement) = agenda.pop(self.clock.now().max(next)) {
                self.publish(&statement)?;
            }
        }
        Ok(())
    }

    /// Estimate handovers from packet arrivals and announce them until the end of the run.
    fn learn(
        &self,
        mut agenda: Agenda,
        plan: BlindPlan,
        mut learner: Learner,
        arrivals: &Arrivals,
    ) -> Result<BlindResult, HostError> {
        let mut estimating: Option<Worker<Estimate>> = None;
        let mut rows = Vec::new();
        loop {
            for arrival in arrivals.drain() {
                learner.arrived(arrival.at, arrival.delay);
            }
            let now = self.clock.now();
            if let Some(done) = estimating.take_if(|worker| worker.is_finished()) {
                let estimate = join(done)?;
                debug!(grid = ?estimate.grid, samples = estimate.samples, "grid estimated");
                learner.learn(now, &estimate, &mut agenda);
            } else if estimating.is_none() && now >= learner.next_estimate() {
                // A separate thread computes estimates: one takes so long that it would make
                // announcements late.
                let traffic = learner.traffic().clone();
                let estimate = move || Ok(plan.estimate(&traffic));
                estimating = Some(spawn("estimate".to_owned(), estimate)?);
            }
            while let Some(statement) = agenda.pop(now) {
                rows.extend(self.publish(&statement)?);
            }
            let next =
                agenda.next().map_or(now + POLL_INTERVAL, |next| next.min(now + POLL_INTERVAL));
            if !sleep_until(self.clock, next, &self.stop)? {
                break;
            }
        }
        if let Some(unfinished) = estimating {
            join(unfinished)?;
        }
        Ok(BlindResult { rows, grid: Some(learner.estimate()) })
    }

    /// Write a statement to all maps; return its event row if it is an announcement.
    fn publish(&self, statement: &Statement) -> Result<Option<EventRow>, HostError> {
        match statement {
            Statement::Announced(announcement) => {
                self.announce(announcement)?;
                let Announcement { at, outage, error, kind, .. } = announcement;
                info!(%at, %outage, %error, %kind, "handover announced");
                Ok(Some(EventRow::announced(announcement)))
            }
            Statement::Withdrawn => {
                self.for_each(|map, scope| map.withdraw(scope), "cannot withdraw a handover")?;
                debug!("announcement withdrawn");
                Ok(None)
            }
        }
    }

    fn announce(&self, announcement: &Announcement) -> Result<(), HostError> {
        let at = self.clock.absolute(announcement.at);
        let handover = Handover {
            at_ns: at.tv_sec() as u64 * 1_000_000_000 + at.tv_nsec() as u64,
            outage_ns: announcement.outage.as_nanos(),
            error_ns: announcement.error.as_nanos(),
            kind: announcement.kind as u32,
            valid: 1,
        };
        self.for_each(|map, scope| map.announce(scope, &handover), "cannot announce a handover")
    }

    fn for_each(
        &self,
        write: impl Fn(&SignalMap, Scope) -> Result<(), KernelError>,
        action: &str,
    ) -> Result<(), HostError> {
        for map in &self.maps {
            for scope in &self.scopes {
                write(map, *scope).context(action)?;
            }
        }
        Ok(())
    }
}
