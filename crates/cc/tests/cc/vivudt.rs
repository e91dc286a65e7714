//! PCC Vivace as in the authors' program for UDT: rates in Mbit/s of packets of 1500 bytes, over a line whose
//! RTT and losses each test sets.

use std::collections::VecDeque;

use skyhop_cc::{CongestionControl, Instance, Module, RateSample, TcpSock};
use skyhop_model::CongestionState;

const PAYLOAD: u64 = 1448;
const PACKET_BITS: f64 = 1500.0 * 8.0;
const SECOND: u64 = 1_000_000;
/// One Mbit/s in the unit of utilities, 2^20 bit/s.
const MBIT: f64 = 1e6 / 1_048_576.0;

/// Fate of a packet on the line.
#[derive(Clone, Copy)]
enum Fate {
    Lost,
    /// Acknowledged after this time, in us.
    After(f64),
}

struct Packet {
    acked_ns: u64,
    sent_ns: u64,
    delivered: u32,
    end_seq: u32,
}

/// Sender of endless data over a line that decides the fate of each packet.
struct Line<F> {
    cc: Instance,
    tp: TcpSock,
    now_ns: u64,
    /// Fate of a packet by its time of transmission in us and its rate in Mbit/s.
    fate: F,
    flying: VecDeque<Packet>,
    /// Number of packets that an ACK covers.
    acked_at_once: u32,
    arrived: u32,
    /// Number of first packets that leave unpaced.
    unpaced: u32,
    /// Successive rates at which packets were sent, in Mbit/s.
    rates: Vec<f64>,
}

fn vivudt(params: &[(&str, &str)]) -> Instance {
    Instance::new(Module::find("vivudt").unwrap(), params).unwrap()
}

impl<F: FnMut(u64, f64) -> Fate> Line<F> {
    fn new(mut cc: Instance, fate: F) -> Self {
        let mss_cache = PAYLOAD as u32;
        let mut tp = TcpSock { tcp_mstamp: SECOND, mss_cache, ..TcpSock::default() };
        cc.init(&mut tp);
        Self {
            cc,
            tp,
            now_ns: SECOND * 1000,
            fate,
            flying: VecDeque::new(),
            acked_at_once: 1,
            arrived: 0,
            unpaced: 0,
            rates: Vec::new(),
        }
    }

    /// Current rate in Mbit/s, headers included.
    fn rate(&self) -> f64 {
        self.tp.sk().sk_pacing_rate as f64 * PACKET_BITS / PAYLOAD as f64 / 1e6
    }

    fn run(&mut self, us: u64) {
        let end_ns = self.now_ns + us * 1000;
        loop {
            let send_ns = self.now_ns.max(self.tp.tcp_wstamp_ns);
            let ack_ns = self.flying.front().map_or(u64::MAX, |packet| packet.acked_ns);
            self.now_ns = send_ns.min(ack_ns).min(end_ns);
            self.tp.tcp_mstamp = self.now_ns / 1000;
            if self.now_ns == end_ns {
                return;
            }
            if ack_ns <= send_ns {
                self.receive();
            } else {
                self.send();
            }
        }
    }

    /// Run until the rate has changed `count` times; return the new rates.
    fn next_rates(&mut self, count: usize) -> Vec<f64> {
        let seen = self.rates.len();
        while self.rates.len() < seen + count {
            self.run(1000);
            assert!(
                self.tp.tcp_mstamp < 1000 * SECOND,
                "the rate stays at {:?}",
                self.rates.last()
            );
        }
        self.rates[seen..seen + count].to_vec()
    }

    fn send(&mut self) {
        let rate = self.rate();
        if self.rates.last() != Some(&rate) {
            self.rates.push(rate);
        }
        self.tp.data_segs_out += 1;
        self.tp.snd_nxt = self.tp.snd_nxt.wrapping_add(PAYLOAD as u32);
        let gap_ns = PAYLOAD * 1_000_000_000 / self.tp.sk().sk_pacing_rate;
        let is_paced = self.tp.data_segs_out > self.unpaced;
        self.tp.tcp_wstamp_ns = self.now_ns + if is_paced { gap_ns } else { 0 };
        if let Fate::After(rtt_us) = (self.fate)(self.tp.tcp_mstamp, rate) {
            self.flying.push_back(Packet {
                acked_ns: self.now_ns + (rtt_us * 1000.0) as u64,
                sent_ns: self.now_ns,
                delivered: self.tp.delivered,
                end_seq: self.tp.snd_nxt,
            });
        }
    }

    fn receive(&mut self) {
        let packet = self.flying.pop_front().expect("a packet has arrived");
        self.arrived += 1;
        if self.arrived < self.acked_at_once {
            return;
        }
        self.arrived = 0;
        self.tp.delivered += self.acked_at_once;
        let sample = RateSample {
            prior_delivered: packet.delivered,
            last_end_seq: packet.end_seq,
            rtt_us: ((self.now_ns - packet.sent_ns) / 1000) as i64,
            acked_sacked: self.acked_at_once,
            ..RateSample::default()
        };
        self.cc.cong_control(&mut self.tp, 0, 0, &sample);
    }

    /// Base rates of the next searches: the rate between the probes, as it is once they have been sent.
    fn bases(&mut self, count: usize) -> Vec<f64> {
        let mut bases: Vec<f64> = Vec::new();
        while bases.len() < count {
            let last = self.next_rates(1)[0];
            let [.., one, other, _] = self.rates[..] else { continue };
            let is_between = ((one + other) / 2.0 / last - 1.0).abs() < 1e-4;
            if is_between && (one / other - 1.0).abs() > 0.05 {
                bases.push(last);
            }
        }
        bases
    }
}

/// Fate function for an RTT that grows with the slope of the rate, per us of sending.
fn sloped(first_us: f64, slope: impl Fn(f64) -> f64) -> impl FnMut(u64, f64) -> Fate {
    let (mut last_us, mut rtt_us) = (SECOND, first_us);
    move |now_us, rate| {
        rtt_us += (now_us - last_us) as f64 * slope(rate);
        last_us = now_us;
        Fate::After(rtt_us)
    }
}

/// Fate function for an RTT of 40 ms that grows steeply above a rate, which ends START.
fn limited(limit: f64) -> impl FnMut(u64, f64) -> Fate {
    sloped(40_000.0, move |rate| if rate > limit { 0.5 } else { 0.0 })
}

fn assert_close(found: &[f64], wanted: &[f64]) {
    let is_close = |(found, wanted): (&f64, &f64)| (found / wanted - 1.0).abs() < 0.0005;
    assert!(
        found.len() == wanted.len() && found.iter().zip(wanted).all(is_close),
        "{found:?} in place of {wanted:?}"
    );
}

/// Utility of a rate without losses and without a slope.
fn worth(rate: f64) -> f64 {
    (rate * MBIT).powf(0.9)
}

/// Step up from a rate, in Mbit/s, without losses and without a slope.
fn gradient(rate: f64) -> f64 {
    let by = (0.05 * rate).max(0.5);
    (worth(rate + by) - worth(rate - by)) / (2.0 * by)
}

#[test]
fn the_rate_doubles_until_that_is_worth_less() {
    let mut line = Line::new(vivudt(&[]), limited(20.0));
    assert_close(&line.next_rates(5), &[1.6, 3.2, 6.4, 12.8, 25.6]);
    let probes = line.next_rates(2);
    assert_close(
        &[probes[0].min(probes[1]), probes[0].max(probes[1])],
        &[0.95 * 12.8, 1.05 * 12.8],
    );
}

/// The first interval takes 100 ms; when its last packet is acknowledged, 40 ms later, the second has begun at
/// the same rate.
#[test]
fn a_rate_doubles_once_the_last_has_come_back() {
    let mut line = Line::new(vivudt(&[]), limited(f64::MAX));
    line.run(180_000);
    assert_close(&line.rates, &[1.6]);
    line.run(30_000);
    assert_close(&line.rates, &[1.6, 3.2]);
    line.run(3 * SECOND);
    assert_close(&line.rates[8..], &[409.6, 819.2, 1024.0]);
}

/// A step of 5 % at 12.8 Mbit/s is 0.64, and the gradient is 0.67.
#[test]
fn a_step_is_5_percent_at_most_and_half_a_megabit_at_least() {
    let mut line = Line::new(vivudt(&[]), limited(20.0));
    assert_close(&line.bases(2), &[12.8, 12.8 * 1.05]);
    // The gradient of the square root at 102.4 is 0.05.
    let mut line = Line::new(vivudt(&[("exponent", "0.5")]), limited(200.0));
    assert_close(&line.bases(2), &[102.4, 102.4 + 0.5]);
}

/// Factors of the steps: the first step has none to be compared with; then 1, 2, 3, 4, and by twos and ones
/// more, until 5 % is less.
#[test]
fn steps_of_one_sign_grow() {
    let mut line = Line::new(vivudt(&[]), limited(200.0));
    let found = line.bases(8);
    let mut rate = 102.4;
    let mut wanted = vec![rate];
    for times in [1.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0] {
        rate += times * gradient(rate);
        wanted.push(rate);
    }
    assert_close(&found, &wanted);
}

/// A slope of the RTT counts in even hundredths: 0.019 has no effect, 0.021 takes 5 % off.
#[test]
fn a_slope_counts_from_two_hundredths_on() {
    for (slope, second) in [(0.019, 12.8 * 1.05), (0.021, 12.8 * 0.95), (-0.021, 12.8 * 1.05)] {
        let answer = move |rate| match rate {
            13.0..20.0 => slope,
            20.0.. => 0.5,
            _ => 0.0,
        };
        let mut line = Line::new(vivudt(&[]), sloped(40_000.0, answer));
        assert_close(&line.bases(2), &[12.8, second]);
    }
}

/// The parameter `latency` has the whole effect of a slope.
#[test]
fn the_stock_program_minds_no_slope() {
    let mut line = Line::new(vivudt(&[("latency", "0")]), limited(20.0));
    assert_close(&line.next_rates(6), &[1.6, 3.2, 6.4, 12.8, 25.6, 51.2]);
}

/// The rate falls by 5 % at once after a turn, then rises by as little as at first.
#[test]
fn a_turn_begins_anew() {
    let answer = |rate| match rate {
        110.0..150.0 => 0.05,
        150.0.. => 0.5,
        _ => 0.0,
    };
    let mut line = Line::new(vivudt(&[]), sloped(40_000.0, answer));
    let found = line.bases(14);
    let turn = found.windows(2).position(|pair| pair[1] < pair[0]).expect("it turns");
    // The probe above the rate was too high, the rate itself was not.
    assert!((110.0 / 1.05..110.0).contains(&found[turn]), "{found:?}");
    let low = 0.95 * found[turn];
    assert_close(&found[turn + 1..turn + 3], &[low, low + gradient(low)]);
    // After two turns there are two more steps before the steps grow, and the one that makes them grow.
    let mut rate = low;
    let wanted = [1.0, 1.0, 1.0, 1.0, 2.0].map(|times| {
        rate += times * gradient(rate);
        rate
    });
    assert_close(&found[turn + 2..turn + 7], &wanted);
}

/// The reduction at a turn does not raise the next bound.
#[test]
fn the_second_step_down_is_as_large_as_the_first() {
    // The limit is lower from the first probe above it on.
    let limit = std::cell::Cell::new(110.0);
    let answer = move |rate| match rate {
        150.0.. => 0.5,
        _ if rate > limit.get() => {
            limit.set(80.0);
            0.05
        }
        _ => 0.0,
    };
    let mut line = Line::new(vivudt(&[]), sloped(40_000.0, answer));
    let found = line.bases(12);
    let turn = found.windows(2).position(|pair| pair[1] < pair[0]).expect("it turns");
    let top = found[turn];
    let low = 0.95 * 0.95 * top;
    assert_close(&found[turn + 1..turn + 4], &[0.95 * top, low, 0.89 * low]);
}

/// A search uses two pairs of probes until two steps had the same sign, then one pair.
#[test]
fn one_pair_is_enough_for_a_trend() {
    let mut line = Line::new(vivudt(&[]), limited(200.0));
    let at_ms: Vec<u64> = (0..4)
        .map(|_| {
            line.bases(1);
            line.now_ns / 1_000_000
        })
        .collect();
    let took_ms: Vec<u64> = at_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // START has left an RTT of 100 ms: four probes and two intervals until their ACKs arrive, then two and two.
    assert!((590..610).contains(&took_ms[0]), "{took_ms:?}");
    assert!(took_ms[1..].iter().all(|ms| (390..410).contains(ms)), "{took_ms:?}");
}

/// Each time that the bound is reached it grows by 6 % of the rate. A step of more than 10 % is compared with
/// the rate that it began from, without probes.
#[test]
fn large_steps_move_on_without_probes() {
    // A falling RTT is a reward, more so at a higher rate.
    let answer = |rate| if rate < 20.0 { -0.006 * rate } else { 0.5 };
    let mut line = Line::new(vivudt(&[]), sloped(1_000_000.0, answer));
    let found = line.bases(2);
    assert_close(&found, &[12.8, 12.8 * 1.05]);
    let moved = line.next_rates(2);
    assert_close(&moved, &[found[1] * 1.11, found[1] * 1.11 * 1.17]);
}

/// A higher rate with clearly less loss is doubted: probes follow in place of the next step.
#[test]
fn a_large_step_that_loses_less_is_looked_at_again() {
    let answer = |rate| if rate < 20.0 { -0.006 * rate } else { 0.5 };
    let mut fate = sloped(1_000_000.0, answer);
    let mut sent = 0;
    let mut line = Line::new(vivudt(&[]), move |now_us, rate| {
        let fate = fate(now_us, rate);
        // The step starts from 13.44 Mbit/s.
        sent += u64::from((13.4..13.5).contains(&rate));
        if (13.4..13.5).contains(&rate) && sent % 10 == 0 { Fate::Lost } else { fate }
    });
    assert_close(&line.bases(2), &[12.8, 12.8 * 1.05]);
    let [moved, one, other] = line.next_rates(3)[..] else { unreachable!() };
    assert_close(&[moved], &[12.8 * 1.05 * 1.11]);
    assert_close(&[one.min(other), one.max(other)], &[0.95 * moved, 1.05 * moved]);
}

/// The first ten packets, which Linux does not pace, would make the first interval one of 5.2 Mbit/s.
#[test]
fn what_is_not_paced_does_not_make_an_interval_faster() {
    let mut line = Line::new(vivudt(&[]), limited(20.0));
    line.unpaced = 10;
    assert_close(&line.next_rates(5), &[1.6, 3.2, 6.4, 12.8, 25.6]);
}

/// The first of two packets may belong to the previous interval, which would then lack it.
#[test]
fn an_ack_for_two_packets_is_no_loss() {
    for rtt_us in [13_000.0, 15_000.0, 40_000.0, 41_000.0] {
        let answer = |rate| if rate > 20.0 { 0.5 } else { 0.0 };
        let mut line = Line::new(vivudt(&[]), sloped(rtt_us, answer));
        line.acked_at_once = 2;
        let bases = line.bases(4);
        assert_close(&bases[..2], &[12.8, 12.8 * 1.05]);
        // The gradient is less than 5 %, then twice the gradient is more than 5 %.
        let third = bases[1] + gradient(bases[1]);
        assert_close(&bases[2..], &[third, 1.05 * third]);
    }
}

/// Fate function that loses every n-th of the packets sent at certain rates.
fn lossy(one_of: impl Fn(f64) -> Option<u64>) -> impl FnMut(u64, f64) -> Fate {
    let mut sent = 0_u64;
    move |_, rate| {
        let Some(n) = one_of(rate) else { return Fate::After(200_000.0) };
        sent += 1;
        if sent.is_multiple_of(n) { Fate::Lost } else { Fate::After(200_000.0) }
    }
}

/// Base rate after the higher probe has lost one packet in `n`.
fn after_losses(n: u64, params: &[(&str, &str)]) -> f64 {
    let chosen = move |rate| match rate {
        13.0..13.5 => Some(n),
        // More than 50 losses in an interval end START.
        20.0.. => Some(3),
        _ => None,
    };
    let mut line = Line::new(vivudt(params), lossy(chosen));
    let found = line.bases(2);
    assert_close(&found[..1], &[12.8]);
    found[1]
}

#[test]
fn losses_count_above_one_percent_and_heavily_above_three() {
    // A loss of 0.9 % of all packets counts for both rates alike.
    assert_close(&[after_losses(60, &[])], &[12.8 * 1.05]);
    // A loss of 2.5 % at 13.44 Mbit/s costs half a unit of utility, so that the gradient is 0.4.
    let up = (worth(13.44) - worth(12.16) - 13.44 * MBIT / 40.0) / 1.28;
    assert!((0.3..0.5).contains(&up), "{up}");
    assert_close(&[after_losses(40, &[])], &[12.8 + 0.5]);
    assert_close(&[after_losses(25, &[])], &[12.8 * 0.95]);
    assert_close(&[after_losses(40, &[("mild_loss", "11.35")])], &[12.8 * 0.95]);
}

/// Ignored losses are not subtracted from the fifty.
#[test]
fn fifty_losses_of_each_interval_do_not_end_the_start() {
    // 25.6 Mbit/s for 200 ms is 426 packets, 51.2 Mbit/s is 853.
    for (n, most) in [(20, 102.4), (10, 51.2)] {
        let chosen = move |rate| match rate {
            60.0.. => Some(2),
            20.0.. => Some(n),
            _ => None,
        };
        let mut line = Line::new(vivudt(&[]), lossy(chosen));
        line.run(5 * SECOND);
        assert_close(&[line.rates.iter().copied().fold(0.0, f64::max)], &[most]);
    }
}

#[test]
fn it_never_falls_below_its_floor() {
    let mut line = Line::new(vivudt(&[]), sloped(40_000.0, |_| 0.3));
    line.run(20 * SECOND);
    let settled = &line.rates[line.rates.len() - 20..];
    // The floor is 1.3 Mbit/s, with half a megabit to both sides
    assert!(settled.iter().all(|rate| (0.799..1.801).contains(rate)), "{settled:?}");
    assert!(settled.iter().any(|rate| *rate < 0.801), "{settled:?}");
}

/// The rate is halved once for all intervals on their way, not for each of them.
#[test]
fn a_lost_majority_halves_the_rate_once() {
    let lost_us = 3 * SECOND..3 * SECOND + 200_000;
    let mut fate = limited(20.0);
    let mut line = Line::new(vivudt(&[]), {
        let lost_us = lost_us.clone();
        move |now_us, rate| {
            let fate = fate(now_us, rate);
            if lost_us.contains(&now_us) { Fate::Lost } else { fate }
        }
    });
    line.run(2 * SECOND);
    let before = line.rate();
    let seen = line.rates.len();
    line.run(SECOND);
    let least = line.rates[seen..].iter().copied().fold(f64::MAX, f64::min);
    assert!((0.45..0.55).contains(&(least / before)), "{before}, then {:?}", &line.rates[seen..]);
}

/// An ACK that is 200 ms late misses its deadline.
#[test]
fn a_missed_deadline_halves_the_rate_where_deadlines_count() {
    for (deadline, part) in [("0", 1.0), ("1", 0.5)] {
        let late_us = 3 * SECOND..3 * SECOND + 200_000;
        // The queue adds only 20 ms, because an RTT above 72 ms would be late itself.
        let mut fate = sloped(40_000.0, |rate| if rate > 20.0 { 0.25 } else { 0.0 });
        let mut line = Line::new(vivudt(&[("deadline", deadline)]), move |now_us, rate| {
            let Fate::After(rtt_us) = fate(now_us, rate) else { unreachable!() };
            let late_us = if late_us.contains(&now_us) { late_us.end - now_us } else { 0 };
            Fate::After(rtt_us + late_us as f64)
        });
        line.run(2 * SECOND);
        let before = line.rate();
        assert!(before > 10.0, "{before}");
        let seen = line.rates.len();
        line.run(SECOND / 2);
        let least = line.rates[seen..].iter().copied().fold(f64::MAX, f64::min) / before;
        assert!((0.85 * part..1.2 * part).contains(&least), "deadline = {deadline}: {least}");
    }
}

/// A missed deadline at less than 1.55 Mbit/s leads to 40 kbit/s. An RTT of 58 ms is short enough to end
/// hibernation, one of 60 ms is not.
#[test]
fn it_hibernates_and_wakes_where_answers_are_quick() {
    for (later_us, wakes) in [(40_000.0, true), (60_000.0, false)] {
        let late_until_us = SECOND + 600_000;
        let mut line = Line::new(vivudt(&[("deadline", "1")]), move |now_us, _| {
            let late_us = late_until_us - now_us.min(late_until_us);
            Fate::After((late_us as f64).max(later_us))
        });
        line.run(602_000);
        assert_close(&[line.rate()], &[0.02]);
        line.run(20 * SECOND);
        assert_eq!(line.rate() > 1.0, wakes, "{}", line.rate());
    }
}

#[test]
fn the_window_is_no_limit() {
    let mut tp = TcpSock::default();
    let mut cc = vivudt(&[]);
    cc.init(&mut tp);
    assert_eq!(tp.snd_cwnd, 100_000);
    tp.snd_cwnd = 1;
    cc.set_state(&mut tp, CongestionState::Loss);
    assert_eq!(tp.snd_cwnd, 100_000);
    let mut tp = TcpSock { snd_cwnd_clamp: 500, ..TcpSock::default() };
    vivudt(&[]).init(&mut tp);
    assert_eq!(tp.snd_cwnd, 500);
}
