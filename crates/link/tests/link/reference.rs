//! Reference implementation of the whole link, as simple and slow as possible: each packet's arrival or loss is
//! computed in one go from lists that are searched from end to end, without cursors and without lazy evaluation.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution as _, Exp1};
use skyhop_link::{GilbertElliott, Limit, LinkConfig, LinkSchedule, Loss, Switching};
use skyhop_model::{DuringOutage, LossReason};

/// A packet offered to the link; its number is its index in the list of packets.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    pub at_ns: u64,
    pub size: u64,
}

/// Fate of a packet on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Arrived {
        at_ns: u64,
    },
    Lost {
        at_ns: u64,
        reason: LossReason,
    },
    /// Never transmitted, as the rate stays zero from some time on.
    Stuck,
}

struct Transmission {
    begins_ns: u64,
    ends_ns: u64,
    size: u64,
    /// Work gained by rounding `ends_ns` up, in bits times ns per second.
    spare: u128,
}

struct Entered {
    arrives_ns: u64,
    route: usize,
}

/// Fate of each of the packets, and the numbers of those that arrive, in order of arrival.
pub fn run(config: &LinkConfig, train: &[Offered]) -> (Vec<Outcome>, Vec<usize>) {
    let schedule = &config.schedule;
    let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
    let mut transmissions: Vec<Transmission> = Vec::new();
    let mut entered: Vec<Entered> = Vec::new();
    let mut outcomes = Vec::new();
    for packet in train {
        if !fits(config.queue, &transmissions, packet) {
            let reason = LossReason::Queue;
            outcomes.push(Outcome::Lost { at_ns: packet.at_ns, reason });
            continue;
        }
        let transmission = transmit(schedule, transmissions.last(), packet);
        let leaves_ns = transmission.ends_ns;
        let probability = loss_probability(config, &transmissions, leaves_ns);
        transmissions.push(transmission);
        outcomes.push(if leaves_ns == u64::MAX {
            Outcome::Stuck
        } else if let Some(reason) = impaired(schedule, probability, &mut rng, leaves_ns) {
            Outcome::Lost { at_ns: leaves_ns, reason }
        } else {
            travel(schedule, &mut entered, leaves_ns)
        });
    }
    let order = order_of_arrival(&outcomes);
    (outcomes, order)
}

fn fits(queue: Limit, transmissions: &[Transmission], packet: &Offered) -> bool {
    let waiting = || transmissions.iter().filter(|earlier| earlier.begins_ns > packet.at_ns);
    match queue {
        Limit::Packets(limit) => (waiting().count() as u64) < limit,
        Limit::Bytes(limit) => {
            waiting().map(|earlier| earlier.size).sum::<u64>() + packet.size <= limit.as_u64()
        }
    }
}

/// Compute a transmission by walking over every time at which the rate may change.
fn transmit(
    schedule: &LinkSchedule,
    before: Option<&Transmission>,
    packet: &Offered,
) -> Transmission {
    let free_ns = before.map_or(0, |before| before.ends_ns);
    let mut at_ns = free_ns.max(packet.at_ns);
    let mut begins_ns = u64::MAX;
    let mut work = u128::from(packet.size) * 8_000_000_000;
    let mut spare = 0;
    loop {
        let rate = u128::from(rate_at(schedule, at_ns));
        let until_ns = next_change(schedule, at_ns);
        if rate > 0 {
            if begins_ns == u64::MAX && at_ns != u64::MAX {
                begins_ns = at_ns;
                if let Some(before) = before.filter(|_| at_ns == free_ns && packet.at_ns < at_ns) {
                    spare = before.spare.saturating_sub(work);
                    work = work.saturating_sub(before.spare);
                }
            }
            if rate * u128::from(until_ns - at_ns) >= work {
                let needed_ns = work.div_ceil(rate);
                spare += needed_ns * rate - work;
                let ends_ns = at_ns + needed_ns as u64;
                return Transmission { begins_ns, ends_ns, size: packet.size, spare };
            }
            work -= rate * u128::from(until_ns - at_ns);
        }
        if until_ns == u64::MAX {
            return Transmission { begins_ns, ends_ns: u64::MAX, size: packet.size, spare: 0 };
        }
        at_ns = until_ns;
    }
}

fn rate_at(schedule: &LinkSchedule, at_ns: u64) -> u64 {
    if schedule.during_outage == DuringOutage::Hold && in_outage(schedule, at_ns) {
        return 0;
    }
    let mut pieces = schedule.rate.iter().rev();
    let piece = pieces.find(|piece| piece.from.as_nanos() <= at_ns).expect("one piece at 0");
    piece.value.bits_per_second()
}

fn next_change(schedule: &LinkSchedule, after_ns: u64) -> u64 {
    let rates = schedule.rate.iter().map(|piece| piece.from);
    let outages = schedule.outages.iter().flat_map(|outage| [outage.from, outage.until]);
    let changes = rates.chain(outages).map(|at| at.as_nanos());
    changes.filter(|&at_ns| at_ns > after_ns).min().unwrap_or(u64::MAX)
}

fn in_outage(schedule: &LinkSchedule, at_ns: u64) -> bool {
    let covers = |from: u64, until: u64| from <= at_ns && at_ns < until;
    schedule.outages.iter().any(|outage| covers(outage.from.as_nanos(), outage.until.as_nanos()))
}

fn draw(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0
}

/// Probability with which the packet after `earlier` ones is lost at random.
fn loss_probability(config: &LinkConfig, earlier: &[Transmission], at_ns: u64) -> f64 {
    let mut pieces = config.schedule.loss.iter().enumerate().rev();
    let found = pieces.find(|(_, piece)| piece.from.as_nanos() <= at_ns);
    let (index, piece) = found.expect("one piece at 0");
    let model = match piece.value {
        Loss::Independent(probability) => return probability.fraction(),
        Loss::GilbertElliott(_) if at_ns == u64::MAX => return 0.0,
        Loss::GilbertElliott(model) => model,
    };
    let from_ns = piece.from.as_nanos();
    let packets = earlier.iter().filter(|packet| packet.ends_ns >= from_ns).count();
    let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
    rng.set_stream(2 + index as u64);
    if is_bad(model, &mut rng, packets, at_ns - from_ns) {
        model.bad_loss.fraction()
    } else {
        model.good_loss.fraction()
    }
}

/// State after this many packets and this time, computed from the beginning.
fn is_bad(model: GilbertElliott, rng: &mut ChaCha8Rng, packets: usize, after_ns: u64) -> bool {
    match model.switching {
        Switching::PerPacket { p, r } => {
            let (p, r) = (p.fraction(), r.fraction());
            let mut bad = draw(rng) < p / (p + r);
            for _ in 0..packets {
                let leaves = draw(rng) < if bad { r } else { p };
                bad = bad != leaves;
            }
            bad
        }
        Switching::InTime { good, bad } => {
            let means_ns = [good, bad].map(|mean| mean.as_nanos() as f64);
            let mut is_bad = draw(rng) < means_ns[1] / (means_ns[0] + means_ns[1]);
            let mut until_ns = 0;
            loop {
                let unit: f64 = Exp1.sample(rng);
                until_ns += (means_ns[usize::from(is_bad)] * unit).round() as u64;
                if after_ns < until_ns {
                    return is_bad;
                }
                is_bad = !is_bad;
            }
        }
    }
}

fn impaired(
    schedule: &LinkSchedule,
    probability: f64,
    rng: &mut ChaCha8Rng,
    at_ns: u64,
) -> Option<LossReason> {
    if probability > 0.0 && draw(rng) < probability {
        return Some(LossReason::Loss);
    }
    let drops = schedule.during_outage == DuringOutage::Drop;
    (drops && in_outage(schedule, at_ns)).then_some(LossReason::Outage)
}

fn travel(schedule: &LinkSchedule, entered: &mut Vec<Entered>, enters_ns: u64) -> Outcome {
    let begun = |from_ns: u64| from_ns > 0 && from_ns <= enters_ns;
    let new_routes = schedule.delay.iter().filter(|piece| piece.new_route);
    let route = new_routes.filter(|piece| begun(piece.from.as_nanos())).count();
    let ahead = entered.iter().filter(|earlier| earlier.route == route);
    let not_before_ns = ahead.map(|earlier| earlier.arrives_ns).max().unwrap_or(0);
    let arrives_ns = not_before_ns.max(enters_ns + delay_at(schedule, enters_ns));
    entered.push(Entered { arrives_ns, route });
    let lost = schedule.dismantled.iter().find(|hop| {
        let at_ns = hop.at.as_nanos();
        enters_ns <= at_ns
            && arrives_ns > at_ns
            && (hop.near.as_nanos()..hop.far.as_nanos()).contains(&(at_ns - enters_ns))
    });
    match lost {
        Some(hop) => Outcome::Lost { at_ns: hop.at.as_nanos(), reason: LossReason::Dismantled },
        None => Outcome::Arrived { at_ns: arrives_ns },
    }
}

fn delay_at(schedule: &LinkSchedule, at_ns: u64) -> u64 {
    let begun = schedule.delay.iter().filter(|piece| piece.from.as_nanos() <= at_ns).count();
    let piece = &schedule.delay[begun - 1];
    let begin_ns = i128::from(piece.delay.as_nanos());
    let change_ns = i128::from(piece.delay_at_end.as_nanos()) - begin_ns;
    let Some(next) = schedule.delay.get(begun) else { return piece.delay.as_nanos() };
    let length_ns = i128::from(next.from.as_nanos() - piece.from.as_nanos());
    let elapsed_ns = i128::from(at_ns - piece.from.as_nanos());
    (begin_ns + change_ns * elapsed_ns / length_ns) as u64
}

fn order_of_arrival(outcomes: &[Outcome]) -> Vec<usize> {
    let mut arrived: Vec<(u64, usize)> = Vec::new();
    for (number, outcome) in outcomes.iter().enumerate() {
        if let Outcome::Arrived { at_ns } = outcome {
            arrived.push((*at_ns, number));
        }
    }
    arrived.sort_unstable();
    arrived.into_iter().map(|(_, number)| number).collect()
}
