//! Tells the run's congestion controls of handovers to come.

use std::sync::Arc;

use skyhop_cc::Handover;
use skyhop_experiment::Experiment;
use skyhop_kernel::{KernelError, Scope, SignalMap, netns_cookie};
use skyhop_record::EventRow;
use skyhop_signal::blind::{BlindPlan, Estimate, Learner};
use skyhop_signal::{Agenda, Announcement, Statement};
use skyhop_units::Duration;

use crate::arrivals::Arrivals;
use crate::traffic::Addresses;
use skyhop_host::clock::{RunClock, Stop, sleep_until, wake_precisely};
use skyhop_host::error::{Context, HostError};
use skyhop_host::namespace::NetNamespace;
use skyhop_host::thread::{Worker, join, spawn};

/// How often arrivals are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Announces on a thread of its own, so that nothing else makes it late.
pub(crate) struct RunningAnnouncer {
    worker: Option<Worker<Learned>>,
}

/// What a run has found out, and announced, by itself.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    /// The rows of announcements that the experiment did not plan.
    pub(crate) rows: Vec<EventRow>,
    pub(crate) grid: Option<Estimate>,
}

impl RunningAnnouncer {
    /// Starts where there is something to announce and somebody to receive it, the connections of the
    /// run's namespaces that look into one of `maps`, or something to find out from `arrivals`.
    pub(crate) fn start(
        experiment: &Experiment,
        maps: Vec<SignalMap>,
        namespaces: &[Arc<NetNamespace>],
        clock: RunClock,
        stop: &Arc<Stop>,
        arrivals: &Arc<Arrivals>,
    ) -> Result<Self, HostError> {
        let nobody_hears = experiment.announcements.is_empty() || maps.is_empty();
        if nobody_hears && experiment.blind.is_none() {
            return Ok(Self { worker: None });
        }
        let scopes = namespaces.iter().map(|namespace| scope(namespace));
        let scopes = scopes.collect::<Result<Vec<Scope>, _>>()?;
        let announcer = Announcer { maps, scopes, clock, stop: Arc::clone(stop) };
        let (agenda, learner) = experiment.agenda();
        let (plan, arrivals) = (experiment.blind, Arc::clone(arrivals));
        let worker = spawn("announcer".to_owned(), move || {
            wake_precisely()?;
            match plan.zip(learner) {
                Some((plan, learner)) => announcer.learn(agenda, plan, learner, &arrivals),
                None => announcer.announce_all(agenda).map(|()| Learned::default()),
            }
        })?;
        Ok(Self { worker: Some(worker) })
    }

    /// Waits for its end.
    pub(crate) fn join(self) -> Result<Learned, HostError> {
        self.worker.map_or_else(|| Ok(Learned::default()), join)
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
    /// Announces what is known beforehand.
    fn announce_all(&self, mut agenda: Agenda) -> Result<(), HostError> {
        while let Some(next) = agenda.next() {
            if !sleep_until(self.clock, next, &self.stop)? {
                break;
            }
            while let Some(said) = agenda.pop(self.clock.now().max(next)) {
                self.publish(&said)?;
            }
        }
        Ok(())
    }

    /// Announces what arrivals show, until the end of the run.
    fn learn(
        &self,
        mut agenda: Agenda,
        plan: BlindPlan,
        mut learner: Learner,
        arrivals: &Arrivals,
    ) -> Result<Learned, HostError> {
        let mut estimating: Option<Worker<Estimate>> = None;
        let mut rows = Vec::new();
        loop {
            for arrival in arrivals.take() {
                learner.arrived(arrival.at, arrival.delay);
            }
            let now = self.clock.now();
            if let Some(done) = estimating.take_if(|worker| worker.is_finished()) {
                learner.learn(now, &join(done)?, &mut agenda);
            } else if estimating.is_none() && now >= learner.next_estimate() {
                // It takes longer than an announcement may be late.
                let traffic = learner.traffic().clone();
                let estimate = move || Ok(plan.estimate(&traffic));
                estimating = Some(spawn("estimate".to_owned(), estimate)?);
            }
            while let Some(said) = agenda.pop(now) {
                rows.extend(self.publish(&said)?);
            }
            let next = agenda.next().map_or(now + LOOK, |next| next.min(now + LOOK));
            if !sleep_until(self.clock, next, &self.stop)? {
                break;
            }
        }
        if let Some(unfinished) = estimating {
            join(unfinished)?;
        }
        Ok(Learned { rows, grid: Some(learner.estimate()) })
    }

    /// Passes on what a source says; its row, where it is an announcement.
    fn publish(&self, said: &Statement) -> Result<Option<EventRow>, HostError> {
        match said {
            Statement::Announced(announcement) => {
                self.announce(announcement)?;
                Ok(Some(EventRow::announced(announcement)))
            }
            Statement::Withdrawn => {
                self.for_each(|map, scope| map.withdraw(scope), "cannot withdraw a handover")?;
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
        tell: impl Fn(&SignalMap, Scope) -> Result<(), KernelError>,
        action: &str,
    ) -> Result<(), HostError> {
        for map in &self.maps {
            for scope in &self.scopes {
                tell(map, *scope).context(action)?;
            }
        }
        Ok(())
    }
}
