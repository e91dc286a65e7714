//! PCC Vivace as in the authors' module, on a path of 10 packets per ms and 40 ms. The tests assert the pacing
//! rate.

use crate::path::{MSS, Sender};
use skyhop_cc::{CongestionControl, Instance, Module, TcpSock};
use skyhop_model::CongestionState;

const TX_US: u64 = 100;
const RTT_US: u64 = 40_000;
const SECOND: u64 = 1_000_000;
const FIRST_RATE: u64 = 512 * 1024;

fn vivace(params: &[(&str, &str)]) -> Instance {
    Instance::new(Module::find("vivace").unwrap(), params).unwrap()
}

/// Successive pacing rates until a time.
fn rates(sender: &mut Sender, until: u64) -> Vec<u64> {
    let mut rates: Vec<u64> =
        sender.run_until(until).iter().map(|moment| moment.pacing_rate).collect();
    rates.dedup();
    rates
}

/// The rate begins 5 % above or below 512 KiB/s, like the probes that follow, and grows by half while utility
/// rises.
#[test]
fn it_begins_with_half_as_much_again_for_each_interval() {
    for seed in 1..5 {
        let mut sender = Sender::new(vivace(&[]).with_seed(seed), TX_US, RTT_US);
        let first = sender.tp.sk().sk_pacing_rate;
        assert!([FIRST_RATE * 95 / 100, FIRST_RATE * 105 / 100].contains(&first), "{first}");
        let rates = rates(&mut sender, 2 * SECOND);
        let wanted: Vec<u64> = (0..6)
            .scan(FIRST_RATE, |rate, _| {
                let now = *rate;
                *rate += *rate / 2;
                Some(now)
            })
            .collect();
        let found: Vec<u64> = rates.iter().copied().filter(|rate| *rate != first).take(6).collect();
        assert_eq!(found, wanted);
    }
}

/// The window is twice what the rate needs for a smoothed RTT, at least four packets.
#[test]
fn the_window_is_twice_what_the_rate_needs() {
    let mut sender = Sender::new(vivace(&[]), TX_US, RTT_US);
    for moment in sender.run_until(SECOND + 20 * RTT_US) {
        let needs = moment.pacing_rate * RTT_US / MSS / 1_000_000;
        assert_eq!(u64::from(moment.cwnd), (2 * needs).max(4), "{moment:?}");
    }
    let mut tp = TcpSock { tcp_mstamp: 1_000_000, srtt_us: 8, ..TcpSock::default() };
    vivace(&[]).init(&mut tp);
    assert_eq!(tp.snd_cwnd, 4);
}

/// Path with a capacity, beyond which packets are lost, so that one rate has the highest utility.
struct LossyPath {
    cc: Instance,
    tp: TcpSock,
    /// Bytes per second that get through; the rest is lost.
    capacity: u64,
    debt: u64,
}

impl LossyPath {
    fn new(capacity: u64, seed: u64, params: &[(&str, &str)]) -> Self {
        let mut tp =
            TcpSock { tcp_mstamp: 1_000_000, srtt_us: 8 * RTT_US as u32, ..TcpSock::default() };
        let mut cc = vivace(params).with_seed(seed);
        cc.init(&mut tp);
        Self { cc, tp, capacity, debt: 0 }
    }

    /// Run for `seconds`, reporting the packets sent a round trip ago every 2 ms; return the pacing rates.
    fn run(&mut self, seconds: u64) -> Vec<u64> {
        let mut rates = Vec::new();
        let mut on_its_way =
            std::collections::VecDeque::from(vec![0_u32; (RTT_US / 2_000) as usize]);
        let mut rest = 0;
        for _ in 0..seconds * 500 {
            let rate = self.tp.sk().sk_pacing_rate;
            rest += rate * 2_000;
            let packets = (rest / 1_000_000 / 1448) as u32;
            rest -= u64::from(packets) * 1448 * 1_000_000;
            self.tp.data_segs_out += packets;
            self.tp.packets_out += packets;
            on_its_way.push_back(packets);
            let back = on_its_way.pop_front().unwrap();
            self.debt += self.capacity * 2_000;
            let through = back.min((self.debt / 1_000_000 / 1448) as u32);
            self.debt =
                (self.debt - u64::from(through) * 1448 * 1_000_000).min(2_000 * self.capacity);
            self.tp.delivered += through;
            self.tp.lost += back - through;
            self.tp.packets_out -= back;
            self.tp.tcp_mstamp += 2_000;
            self.cc.cong_control(&mut self.tp, 0, 0, &skyhop_cc::RateSample::default());
            rates.push(self.tp.sk().sk_pacing_rate);
        }
        rates
    }
}

fn mean(rates: &[u64]) -> f64 {
    rates.iter().sum::<u64>() as f64 / rates.len() as f64
}

/// A loss of a few per cent costs 11 times as much as the rate that caused it gains.
#[test]
fn it_settles_where_loss_begins() {
    let capacity = 5_000_000;
    for seed in 1..5 {
        let mut worth = LossyPath::new(capacity, seed, &[]);
        worth.run(20);
        let rate = mean(&worth.run(20)) / capacity as f64;
        assert!((0.8..1.05).contains(&rate), "{rate}");
        // If loss costs nothing, nothing limits the rate.
        let mut careless = LossyPath::new(capacity, seed, &[("loss", "0")]);
        careless.run(20);
        assert!(mean(&careless.run(20)) > 1.5 * capacity as f64);
    }
}

/// Nothing is measured from a timeout to its end: all packets leave at one rate, and probes follow.
#[test]
fn a_timeout_stops_measuring_until_it_is_over() {
    let mut worth = LossyPath::new(5_000_000, 1, &[]);
    worth.run(5);
    worth.cc.set_state(&mut worth.tp, CongestionState::Loss);
    let rate = worth.tp.sk().sk_pacing_rate;
    assert!(worth.run(1).iter().all(|now| *now == rate));
    worth.cc.set_state(&mut worth.tp, CongestionState::Open);
    let probe = worth.tp.sk().sk_pacing_rate;
    assert!([rate * 95 / 100, rate * 105 / 100].contains(&probe), "{probe} after {rate}");
}

/// Parameters for a power of the rate in place of the rate, and 50 packets per RTT to begin with.
#[test]
fn what_the_closed_variants_differ_in_are_parameters() {
    let mut tp = TcpSock { srtt_us: 8 * 500_000, ..TcpSock::default() };
    vivace(&[("initial_window", "50")]).init(&mut tp);
    let first = tp.sk().sk_pacing_rate;
    let wanted = 50 * 1448 * 2;
    assert!([wanted * 95 / 100, wanted * 105 / 100].contains(&first), "{first}");
    let capacity = 5_000_000;
    let settled = |params: &[(&str, &str)]| {
        let mut worth = LossyPath::new(capacity, 1, params);
        worth.run(20);
        mean(&worth.run(20)) / capacity as f64
    };
    let powered = settled(&[("exponent", "0.9"), ("loss", "10"), ("latency", "2")]);
    assert!((0.7..1.1).contains(&powered), "{powered}");
}
