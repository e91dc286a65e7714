//! Plan of Linux's disciplines for a scenario: whether they can emulate it, and their settings over time.

use skyhop_app::App;
use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, FlowPlan, LinkPlan, seed_for};
use skyhop_host::HostError;
use skyhop_host::device::Disciplines;
use skyhop_link::{
    DelayPiece, Dismantled, Isolation, LinkConfig, LinkSchedule, Loss, Outage, QueueDiscipline,
};
use skyhop_model::{Direction, DuringOutage, LARGEST_PACKET, LossReason};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

use super::child_qdisc::{child, marks};
use super::disciplines::{LinkState, disciplines};

/// Size of the steps by which a gradually changing delay is approximated. The error is at most half a step, which
/// is about the lateness of pumps.
const GRAIN: Duration = Duration::from_micros(4);
/// Shortest duration of a step of [`GRAIN`].
const SHORTEST: Duration = Duration::from_millis(5);

/// Settings of the disciplines of a run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TcPlan {
    /// Settings of each direction, at the start and at each change.
    pub(crate) directions: [Vec<Step>; 2],
    /// Whether the kernel may pass several packets to the queue in one GSO buffer, which tbf then segments.
    pub(crate) segments: bool,
    /// Whether the disciplines may mark packets of flows; the kernel counts marks only in total, not by flow.
    pub(crate) marks_flows: bool,
}

/// Settings of a direction's disciplines from time `at` on.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) at: Instant,
    pub(crate) disciplines: Disciplines,
    /// Reason for which every packet is lost; `None` if packets pass.
    pub(crate) loss_of_all: Option<LossReason>,
}

impl TcPlan {
    /// Plan the disciplines for an experiment.
    ///
    /// # Errors
    /// A key requires behaviour in which Linux's disciplines differ from skyhop's links; the error names it.
    pub(crate) fn new(experiment: &Experiment) -> Result<Self, Unsupported> {
        check_flows(experiment)?;
        let [link] = experiment.links.as_slice() else {
            let what = "there are several links, or a queue at each hop";
            return Err(Unsupported::new("links", what));
        };
        let of = |direction| {
            let config = link.config(direction);
            let steps = check_hosts(experiment, &config.qdisc).and_then(|()| steps(config));
            steps.map_err(|error| with_direction(error, direction))
        };
        let directions = [of(Direction::Forward)?, of(Direction::Back)?];
        let bucket = |config: &LinkConfig| config.schedule.burst > Bytes::ZERO;
        let segments = !bucket(&link.forward) && !bucket(&link.back);
        Ok(Self { directions, segments, marks_flows: marks_flows(experiment, link) })
    }

    /// Try the disciplines in this kernel.
    pub(crate) fn check_support(&self) -> Result<(), HostError> {
        self.directions.iter().try_for_each(|steps| steps[0].disciplines.check_support())
    }
}

/// Prefix the key with `link.back` for the backward direction; `link` alone means forward.
fn with_direction(error: Unsupported, direction: Direction) -> Unsupported {
    match (direction, error.key.strip_prefix("link.")) {
        (Direction::Back, Some(key)) => Unsupported::new(format!("link.back.{key}"), error.what),
        _ => error,
    }
}

fn check_flows(experiment: &Experiment) -> Result<(), Unsupported> {
    if experiment.blind.is_some() {
        let what = "the run estimates handovers from packet arrivals";
        return Err(Unsupported::new("signal.source", what));
    }
    for flow in &experiment.flows {
        let key = |key: &str| format!("flow {}: {key}", flow.id);
        if flow.extra_rtt > Duration::ZERO {
            return Err(Unsupported::new(key("extra_rtt"), "the flow has an extra RTT of its own"));
        }
        if flow.routes.iter().any(|route| route.links != [experiment.path_link()]) {
            return Err(Unsupported::new(key("via"), "the flow's route is not the path alone"));
        }
    }
    Ok(())
}

/// Whether a discipline may mark packets of a flow with ECN.
fn marks_flows(experiment: &Experiment, link: &LinkPlan) -> bool {
    let asked = experiment.flows.iter().filter_map(|flow| flow.tcp_options());
    asked.chain([&experiment.tcp]).any(|options| options.ecn)
        && [&link.forward, &link.back].into_iter().any(|config| marks(&config.qdisc))
}

/// Check cake's host isolation: skyhop's links treat each flow as a host, but a guest's flows share two hosts.
fn check_hosts(experiment: &Experiment, qdisc: &QueueDiscipline) -> Result<(), Unsupported> {
    let QueueDiscipline::Cake(cake) = qdisc else { return Ok(()) };
    let is_many =
        |flow: &FlowPlan| matches!(flow.traffic.app(), App::Page(page) if page.connections > 1);
    let differs = match cake.isolation {
        Isolation::Hosts => true,
        Isolation::TripleIsolate => experiment.flows.iter().any(is_many),
        Isolation::Flows | Isolation::Flowblind => false,
    };
    if differs && experiment.flows.len() > 1 {
        let what = "all flows of a guest are between the same two hosts";
        return Err(Unsupported::new("link.qdisc.isolation", what));
    }
    Ok(())
}

/// Plan the steps of one direction.
fn steps(config: &LinkConfig) -> Result<Vec<Step>, Unsupported> {
    let schedule = &config.schedule;
    check_schedule(schedule)?;
    let child = child(config)?;
    let delays = flat_delays(schedule)?;
    let removals: Vec<Outage> =
        schedule.dismantled.iter().map(|hop| removal_interval(schedule, hop)).collect();
    let mut steps: Vec<Step> = Vec::new();
    let mut draws = 0_u32;
    for at in change_times(schedule, &delays, &removals) {
        let flat = delays[delays.partition_point(|flat| flat.from <= at) - 1];
        let loss_of_all = loss_of_all(schedule, &removals, at);
        let mut state = LinkState {
            rate: schedule.rate_at(at),
            burst: schedule.burst,
            delay: flat.delay,
            keeps_order: flat.keeps_order,
            loss: independent(schedule.loss_at(at))?,
            loses_all: loss_of_all.is_some(),
            // A netem whose settings do not change is not set again, because that would restart its
            // random draws.
            seed: seed_for(config.seed, &format!("netem {draws}")),
        };
        let mut now = disciplines(&state, &child);
        if let Some(last) = steps.last() {
            if last.disciplines == now && last.loss_of_all == loss_of_all {
                continue;
            }
            if last.disciplines.line[1] != now.line[1] {
                draws += 1;
                state.seed = seed_for(config.seed, &format!("netem {draws}"));
                now = disciplines(&state, &child);
            }
        }
        steps.push(Step { at, disciplines: now, loss_of_all });
    }
    Ok(steps)
}

fn check_schedule(schedule: &LinkSchedule) -> Result<(), Unsupported> {
    let not = |key: &str, what: &str| Err(Unsupported::new(key, what));
    if schedule.rate.iter().any(|piece| piece.value == Rate::ZERO) {
        return not("link.rate", "it is zero at times");
    }
    if schedule.during_outage == DuringOutage::Hold && !schedule.outages.is_empty() {
        return not("path.during_outage", "packets are held during outages");
    }
    if schedule.dismantled.iter().any(|hop| hop.queue) {
        return not("path", "hops are removed together with the packets queued at them");
    }
    if schedule.dama.is_some() {
        return not("link.dama", "capacity is assigned on demand");
    }
    if schedule.burst > Bytes::ZERO && schedule.burst < LARGEST_PACKET {
        return not("link.burst", "it is smaller than a packet");
    }
    if schedule.burst.as_u64() > u32::MAX.into() {
        return not("link.burst", "it is larger than Linux allows");
    }
    Ok(())
}

/// Probability of a loss that is independent from packet to packet.
fn independent(loss: Loss) -> Result<Ratio, Unsupported> {
    match loss {
        Loss::Independent(probability) => Ok(probability),
        Loss::GilbertElliott(_) => {
            let what = "its bursts would not be those that skyhop's links draw";
            Err(Unsupported::new("link.loss", what))
        }
    }
}

/// Interval in which packets enter the delay line that will be on a hop when the hop is removed. The schedule is
/// known in advance, so that netem drops these packets when they enter.
fn removal_interval(schedule: &LinkSchedule, hop: &Dismantled) -> Outage {
    let just_before = hop.at - Duration::from_nanos(1);
    // A packet that entered earlier has already arrived.
    let from = hop.at - hop.far.min(schedule.delay_at(just_before));
    let until = hop.at - hop.near;
    Outage { from, until: until.max(from) }
}

/// Reason for which every packet that enters the delay line at `at` is lost; an outage takes precedence.
fn loss_of_all(schedule: &LinkSchedule, removals: &[Outage], at: Instant) -> Option<LossReason> {
    if schedule.outage_at(at).is_some() {
        return Some(LossReason::Outage);
    }
    let covers = |time: &Outage| time.from <= at && at < time.until;
    removals.iter().any(covers).then_some(LossReason::Dismantled)
}

/// Constant delay, which lasts until the next one begins.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FlatDelay {
    from: Instant,
    delay: Duration,
    /// Whether packets leave in order of arrival. Required where the delay of a route falls; but packets on a new
    /// route must not wait for packets that are still on the old route.
    keeps_order: bool,
}

/// Delays of a schedule, with slopes approximated by steps of at most [`GRAIN`].
fn flat_delays(schedule: &LinkSchedule) -> Result<Vec<FlatDelay>, Unsupported> {
    let mut flat = Vec::with_capacity(schedule.delay.len());
    let (mut longest, mut before) = (Duration::ZERO, Duration::ZERO);
    // Time until which packets are in flight on older routes.
    let mut drained = Instant::START;
    for (index, piece) in schedule.delay.iter().enumerate() {
        if piece.new_route {
            drained = piece.from + longest;
        } else if piece.delay < before && piece.from < drained {
            let what = "the delay falls while packets of an older route are in flight";
            return Err(Unsupported::new("path", what));
        }
        longest = longest.max(piece.delay).max(piece.delay_at_end);
        before = piece.delay_at_end;
        let until = schedule.delay.get(index + 1).map_or(piece.from, |next| next.from);
        for (from, delay) in steps_of(piece, until)? {
            // A decrease of the delay on the new route is postponed until the old route is empty;
            // the error is at most one [`GRAIN`].
            let keeps_order = from >= drained;
            let falls = flat.last().is_some_and(|last: &FlatDelay| delay < last.delay);
            if keeps_order || !falls || from == piece.from {
                flat.push(FlatDelay { from, delay, keeps_order });
            }
        }
    }
    Ok(flat)
}

/// Approximate a piece of the delay by steps; each step has the delay of its midpoint.
fn steps_of(piece: &DelayPiece, until: Instant) -> Result<Vec<(Instant, Duration)>, Unsupported> {
    let DelayPiece { from, delay, delay_at_end, .. } = *piece;
    let (low, high) = (delay.min(delay_at_end), delay.max(delay_at_end));
    let change_ns = (high - low).as_nanos();
    let (steps, lasts_ns) =
        (change_ns.div_ceil(GRAIN.as_nanos()).max(1), until.saturating_since(from).as_nanos());
    if steps > 1 && lasts_ns / steps < SHORTEST.as_nanos() {
        let what = "its delay changes faster than about 0.8 ms per second";
        return Err(Unsupported::new("path", what));
    }
    let part = |of_ns: u64, number: u64, of: u64| {
        (u128::from(of_ns) * u128::from(number) / u128::from(of)) as u64
    };
    Ok((0..steps)
        .map(|step| {
            let passed = Duration::from_nanos(part(change_ns, 2 * step + 1, 2 * steps));
            let now = if delay_at_end > delay { delay + passed } else { delay - passed };
            (from + Duration::from_nanos(part(lasts_ns, step, steps)), now)
        })
        .collect())
}

/// Times of all changes, including the start.
fn change_times(
    schedule: &LinkSchedule,
    delays: &[FlatDelay],
    removals: &[Outage],
) -> Vec<Instant> {
    let mut times: Vec<Instant> = delays.iter().map(|flat| flat.from).collect();
    times.extend(schedule.rate.iter().map(|piece| piece.from));
    times.extend(schedule.loss.iter().map(|piece| piece.from));
    let intervals = schedule.outages.iter().chain(removals);
    times.extend(intervals.flat_map(|time| [time.from, time.until]));
    times.sort_unstable();
    times.dedup();
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use skyhop_host::tc::{Netem, TcQdisc};
    use skyhop_link::{DamaConfig, Dismantled, FifoConfig, Limit, Outage, Piece};

    const RATE: Rate = Rate::from_bits_per_second(50_000_000);

    fn ms(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    /// Link with a fifo of 250 kB, 50 Mbit/s and 20 ms.
    fn fixed() -> LinkConfig {
        LinkConfig {
            schedule: LinkSchedule::fixed(Duration::from_millis(20), RATE, Ratio::ZERO),
            qdisc: QueueDiscipline::Fifo(FifoConfig::default()),
            queue: Limit::Bytes(Bytes::new(250_000)),
            seed: 7,
        }
    }

    /// Link with delays: start in ms, delay in ms, and whether it is a new route.
    fn with_delays(pieces: &[(u64, u64, bool)]) -> LinkConfig {
        let mut config = fixed();
        let piece = |&(from, delay, new_route): &(u64, u64, bool)| {
            let delay = Duration::from_millis(delay);
            DelayPiece { from: ms(from), delay, delay_at_end: delay, new_route }
        };
        config.schedule.delay = pieces.iter().map(piece).collect();
        config
    }

    fn netem(qdisc: &TcQdisc) -> Netem {
        match qdisc {
            TcQdisc::Netem(netem) => *netem,
            other => panic!("{other:?} is no netem"),
        }
    }

    fn travels(step: &Step) -> Netem {
        netem(&step.disciplines.line[1])
    }

    fn refused(change: impl FnOnce(&mut LinkConfig)) -> String {
        let mut config = fixed();
        change(&mut config);
        steps(&config).unwrap_err().to_string()
    }

    #[test]
    fn a_fixed_link_is_a_bucket_of_one_packet_over_its_queue_and_a_line_of_exact_times() {
        let all = steps(&fixed()).unwrap();
        let [only] = all.as_slice() else { panic!("{all:?}") };
        let limit = 250_000;
        let queue =
            [TcQdisc::Tbf { rate: RATE, burst: LARGEST_PACKET, limit }, TcQdisc::Bfifo { limit }];
        assert_eq!(only.disciplines.queue, queue);
        let sent = netem(&only.disciplines.line[0]);
        // Slightly faster than 6,250,000 B/s: 242,240 ns for the largest packet.
        assert_eq!((sent.delay, sent.bytes_per_second), (Duration::ZERO, 6_250_063));
        let travels = travels(only);
        assert_eq!((travels.delay, travels.loss), (Duration::from_millis(20), Ratio::ZERO));
        assert_eq!(only.loss_of_all, None);
    }

    #[test]
    fn each_change_is_a_step_that_leaves_the_rest_as_it_is() {
        let mut config = fixed();
        let slow = Rate::from_bits_per_second(8_000_000);
        config.schedule.rate.push(Piece { from: ms(100), value: slow });
        config.schedule.loss.push(Piece { from: ms(200), value: Ratio::new(0.25).unwrap().into() });
        config.schedule.outages.push(Outage { from: ms(300), until: ms(400) });
        let steps = steps(&config).unwrap();
        let times: Vec<Instant> = steps.iter().map(|step| step.at).collect();
        assert_eq!(times, [ms(0), ms(100), ms(200), ms(300), ms(400)]);
        let [first, slower, lossy, down, up] = steps.as_slice() else { panic!("{steps:?}") };
        assert_eq!(slower.disciplines.line[1], first.disciplines.line[1]);
        assert_ne!(slower.disciplines.queue[0], first.disciplines.queue[0]);
        assert_eq!(lossy.disciplines.queue, slower.disciplines.queue);
        assert_eq!(travels(lossy).loss.fraction(), 0.25);
        assert_eq!((down.loss_of_all, up.loss_of_all), (Some(LossReason::Outage), None));
        assert_eq!(travels(down).loss.fraction(), 1.0);
        assert_eq!(travels(up).loss.fraction(), 0.25);
        // After an outage netem gets a new seed, so that it does not repeat its draws.
        assert_ne!(travels(up).seed, travels(lossy).seed);
    }

    #[test]
    fn only_a_new_route_lets_packets_overtake() {
        let one_after_the_other = |pieces| -> Vec<bool> {
            let steps = steps(&with_delays(pieces)).unwrap();
            steps.iter().map(|step| travels(step).bytes_per_second > 0).collect()
        };
        assert_eq!(one_after_the_other(&[(0, 40, false), (100, 20, false)]), [true, true]);
        assert_eq!(one_after_the_other(&[(0, 40, false), (100, 20, true)]), [true, false]);
        // As paths for netem have it: each decrease is a new route, each increase stays on the route.
        let netems = [(0, 40, false), (50, 20, true), (60, 40, false), (70, 30, true)];
        assert_eq!(one_after_the_other(&netems), [true, false, false, false]);
        // Order is kept again once the old route is empty.
        let later = [(0, 40, false), (50, 20, true), (100, 10, false)];
        assert_eq!(one_after_the_other(&later), [true, false, true]);
        let sooner = with_delays(&[(0, 40, false), (50, 20, true), (89, 10, false)]);
        assert!(steps(&sooner).unwrap_err().to_string().starts_with("path: the delay falls while"));
    }

    #[test]
    fn a_slope_is_steps_that_are_off_by_no_more_than_half_a_grain() {
        let mut config = with_delays(&[(0, 40, false), (1000, 20, true), (2000, 21, true)]);
        config.schedule.delay[0].delay_at_end = Duration::from_micros(40_030);
        config.schedule.delay[1].delay_at_end = Duration::from_micros(19_990);
        let steps = steps(&config).unwrap();
        assert_eq!(steps.len(), 8 + 3 + 1);
        let off = |at: Instant, delay: Duration| {
            let exact = config.schedule.delay_at(at);
            exact.max(delay) - exact.min(delay)
        };
        for pair in steps.windows(2) {
            let (delay, last) = (travels(&pair[0]).delay, pair[1].at - Duration::from_nanos(1));
            assert!(
                off(pair[0].at, delay) <= GRAIN / 2 && off(last, delay) <= GRAIN / 2 + GRAIN / 2000
            );
        }
        // Decreases on the second route come once the first one is empty.
        let orders: Vec<bool> =
            steps[8..].iter().map(|one| travels(one).bytes_per_second > 0).collect();
        assert_eq!(orders, [false, true, true, false]);
        config.schedule.delay[0].delay_at_end = Duration::from_millis(41);
        let error = super::steps(&config).unwrap_err().to_string();
        assert!(error.starts_with("path: its delay changes faster"), "{error}");
    }

    #[test]
    fn packets_that_will_be_on_a_removed_hop_are_dropped_on_entry() {
        let mut config = with_delays(&[(0, 40, false), (500, 30, true)]);
        let hop = |near, far| {
            let [near, far] = [near, far].map(Duration::from_millis);
            Dismantled { at: ms(500), near, far, queue: false }
        };
        let last = Dismantled { far: Duration::MAX, ..hop(35, 0) };
        config.schedule.dismantled = vec![hop(10, 20), last];
        config.schedule.outages.push(Outage { from: ms(480), until: ms(485) });
        let steps = steps(&config).unwrap();
        let taken: Vec<_> = steps.iter().map(|step| (step.at, step.loss_of_all)).collect();
        let (dismantled, outage) = (Some(LossReason::Dismantled), Some(LossReason::Outage));
        let expected = [
            (ms(0), None),
            (ms(460), dismantled),
            (ms(465), None),
            (ms(480), outage),
            (ms(485), dismantled),
            (ms(490), None),
            (ms(500), None),
        ];
        assert_eq!(taken, expected);
    }

    #[test]
    fn a_bucket_of_the_scenarios_takes_packets_no_time() {
        let mut config = fixed();
        config.schedule.burst = Bytes::new(15_360);
        let steps = steps(&config).unwrap();
        let TcQdisc::Tbf { burst, .. } = steps[0].disciplines.queue[0] else { panic!("{steps:?}") };
        assert_eq!(burst, Bytes::new(15_360));
        assert_eq!(netem(&steps[0].disciplines.line[0]).bytes_per_second, u64::MAX);
    }

    #[test]
    fn unsupported_schedules_are_named_by_their_key() {
        let hour = Instant::START + Duration::from_secs(3600);
        for (found, expected) in [
            (
                refused(|c| c.schedule.rate.push(Piece { from: hour, value: Rate::ZERO })),
                "link.rate: it is zero at times",
            ),
            (
                refused(|c| {
                    c.schedule.during_outage = DuringOutage::Hold;
                    c.schedule.outages.push(Outage { from: hour, until: hour });
                }),
                "path.during_outage: packets are held",
            ),
            (
                refused(|c| {
                    let (near, far) = (Duration::ZERO, Duration::MAX);
                    c.schedule.dismantled.push(Dismantled { at: hour, near, far, queue: true });
                }),
                "path: hops are removed together with",
            ),
            (
                refused(|c| {
                    let bursts = r#"{"kind": "gilbert-elliott", "good": "9 s", "bad": "1 s"}"#;
                    let value = serde_json::from_str(bursts).unwrap();
                    c.schedule.loss.push(Piece { from: hour, value });
                }),
                "link.loss: its bursts would not be those",
            ),
            (refused(|c| c.schedule.burst = Bytes::new(1000)), "link.burst: it is smaller"),
            (
                refused(|c| c.schedule.dama = Some(DamaConfig::default())),
                "link.dama: capacity is assigned on demand",
            ),
            (refused(|c| c.queue = Limit::Packets(1 << 40)), "link.queue: it is larger than"),
        ] {
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
