//! Handover grid that a run estimates from its own traffic.

use serde::{Deserialize, Serialize};
use skyhop_units::{Duration, Instant, UtcInstant};

use super::{Estimate, MIN_MOMENTS, Period, Sample, Traffic};
use crate::{Agenda, Timing};

/// Time between two estimates.
pub const ESTIMATE_EVERY: Duration = Duration::from_secs(30);
/// Maximum age of arrivals that an estimate uses. A clock that drifts by 50 ppm moves the grid by 30 ms in that
/// time, which is less than an outage.
pub const WINDOW: Duration = Duration::from_secs(600);

/// Parameters of a run's blind estimation and of its announcements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlindPlan {
    /// Time between two handovers.
    pub period: Duration,
    /// Lead time and error of the announcements.
    pub timing: Timing,
    /// UTC at the start of the run; the grid's offset refers to UTC.
    pub start: UtcInstant,
}

/// Estimator of the grid from the arrivals behind a link.
///
/// Sans-IO: an engine passes in the packet arrivals, makes an estimate when one is due, and passes
/// it by [`Learner::learn`] to the [`Agenda`] from which the engine makes announcements.
#[derive(Debug)]
pub struct Learner {
    plan: BlindPlan,
    traffic: Traffic,
    next_estimate: Instant,
}

impl Learner {
    /// Create an estimator without arrivals.
    pub fn new(plan: BlindPlan) -> Self {
        Self {
            plan,
            traffic: Traffic::default(),
            next_estimate: Instant::START + plan.period * (MIN_MOMENTS + 1) as u64,
        }
    }

    /// Record the arrival of a packet with a one-way delay of `delay`. An event at the link shows in the arrivals
    /// later by the shortest of these delays.
    pub fn arrived(&mut self, at: Instant, delay: Duration) {
        self.traffic.push(Sample { at: self.utc(at), delay: Some(delay) });
    }

    /// Time at which the next estimate is due.
    pub fn next_estimate(&self) -> Instant {
        self.next_estimate
    }

    /// Recorded arrivals, from which an estimate can also be made later or on another thread.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Estimate the grid of handovers at the link. They show in the arrivals later by the shortest one-way delay,
    /// which is subtracted.
    pub fn estimate(&self) -> Estimate {
        self.plan.estimate(&self.traffic)
    }

    /// Set the grid of `agenda` from an estimate, in place of the previous grid. An estimate without a grid ends
    /// the announcements.
    pub fn learn(&mut self, now: Instant, estimate: &Estimate, agenda: &mut Agenda) {
        self.next_estimate = now + ESTIMATE_EVERY;
        if let Some(before) = now.as_nanos().checked_sub(WINDOW.as_nanos()) {
            self.traffic.forget(self.utc(Instant::from_nanos(before)));
        }
        agenda.set_grid(now, estimate.grid.map(|grid| (grid, estimate.evidence.error())));
    }

    fn utc(&self, at: Instant) -> UtcInstant {
        self.plan.start.after(at.saturating_since(Instant::START))
    }
}

impl BlindPlan {
    /// Create the agenda of a run with this plan.
    pub fn agenda(&self) -> Agenda {
        Agenda::new(self.timing, self.start)
    }

    /// Estimate the grid from a run's arrivals, as [`Learner::estimate`] does.
    pub fn estimate(&self, traffic: &Traffic) -> Estimate {
        let mut estimate = traffic.estimate(Period::Known(self.period));
        let one_way = traffic.shortest_delay().unwrap_or(Duration::ZERO).as_nanos();
        if let Some(grid) = &mut estimate.grid {
            let period_ns = grid.period.as_nanos();
            let at_link = grid.offset.as_nanos() + period_ns - one_way % period_ns;
            grid.offset = Duration::from_nanos(at_link % period_ns);
        }
        estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, TimingError};

    fn plan(lead_ms: u64) -> BlindPlan {
        let timing = Timing::new(Duration::from_millis(lead_ms), TimingError::None, 1);
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        BlindPlan { period: Duration::from_secs(15), timing, start }
    }

    fn learner(plan: BlindPlan) -> (Learner, Agenda) {
        (Learner::new(plan), plan.agenda())
    }

    /// Record one arrival per ms, 20 ms after it was sent, except for the ms for which `frozen` is true.
    fn record_arrivals(
        source: &mut Learner,
        ms: std::ops::Range<u64>,
        frozen: impl Fn(u64) -> bool,
    ) {
        for ms in ms.filter(|ms| !frozen(*ms)) {
            let at = Instant::from_nanos(ms * 1_000_000 + 20_000_000);
            source.arrived(at, Duration::from_millis(20));
        }
    }

    fn learned(source: &mut Learner, agenda: &mut Agenda, at: Instant) {
        let estimate = source.estimate();
        source.learn(at, &estimate, agenda);
    }

    fn at_s(seconds: f64) -> Instant {
        Instant::START + Duration::from_secs_f64(seconds)
    }

    fn said(agenda: &mut Agenda, until: Instant) -> Vec<(f64, f64)> {
        let mut said = Vec::new();
        while let Some(next) = agenda.next().filter(|next| *next < until) {
            match agenda.pop(next) {
                Some(Statement::Announced(one)) => {
                    assert_eq!(one.error, Duration::from_millis(10));
                    said.push((one.announced.as_secs_f64(), one.at.as_secs_f64()));
                }
                other => panic!("{other:?}"),
            }
        }
        said
    }

    #[test]
    fn a_grid_is_announced_once_it_is_found_at_the_links_own_moments() {
        let (mut source, mut agenda) = learner(plan(1000));
        assert_eq!((agenda.next(), source.next_estimate()), (None, at_s(105.0)));
        record_arrivals(&mut source, 0..95_000, |ms| (ms % 15_000).wrapping_sub(4_200) < 50);
        learned(&mut source, &mut agenda, at_s(95.0));
        let announced = said(&mut agenda, at_s(130.0));
        let moments = [109.2, 124.2];
        assert_eq!(announced.len(), 2, "{announced:?}");
        for ((announced, at), moment) in announced.iter().zip(moments) {
            assert!((at - moment).abs() < 0.002, "{at}");
            assert!((announced + 1.0 - at).abs() < 1e-9, "{announced}");
        }
        // The next estimate does not announce the same handovers again.
        learned(&mut source, &mut agenda, at_s(125.0));
        assert!((said(&mut agenda, at_s(140.0))[0].1 - 139.2).abs() < 0.002);
    }

    #[test]
    fn a_moment_whose_time_to_be_announced_is_over_is_announced_late() {
        let (mut source, mut agenda) = learner(plan(10_000));
        record_arrivals(&mut source, 0..106_000, |ms| (ms % 15_000).wrapping_sub(4_200) < 50);
        learned(&mut source, &mut agenda, at_s(106.0));
        let announced = said(&mut agenda, at_s(110.0));
        assert_eq!(announced.len(), 1);
        assert_eq!(announced[0].0, 106.0);
    }

    #[test]
    fn what_turns_out_to_be_no_grid_is_withdrawn() {
        let (mut source, mut agenda) = learner(plan(5000));
        record_arrivals(&mut source, 0..103_000, |ms| (ms % 15_000).wrapping_sub(4_200) < 50);
        learned(&mut source, &mut agenda, at_s(103.0));
        assert_eq!(said(&mut agenda, at_s(104.5)).len(), 1);
        let nothing = Estimate { grid: None, ..source.estimate() };
        source.learn(at_s(103.5), &nothing, &mut agenda);
        assert_eq!(agenda.pop(at_s(103.5)), Some(Statement::Withdrawn));
        assert_eq!((agenda.pop(at_s(103.5)), agenda.next()), (None, None));
        // A handover that is over is not withdrawn.
        learned(&mut source, &mut agenda, at_s(104.0));
        said(&mut agenda, at_s(105.0));
        source.learn(at_s(115.0), &nothing, &mut agenda);
        assert_eq!(agenda.pop(at_s(115.0)), None);
    }

    #[test]
    fn old_arrivals_are_forgotten() {
        let (mut source, mut agenda) = learner(plan(0));
        record_arrivals(&mut source, 0..700_000, |ms| ms % 10 != 0);
        let before = source.traffic().samples();
        learned(&mut source, &mut agenda, at_s(690.0));
        assert_eq!((before, source.traffic().samples()), (70_000, 61_002));
    }
}
