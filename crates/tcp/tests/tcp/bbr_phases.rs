//! BBR's cycle of eight pacing gains, as the pacing rate and the segments sent show it.

use skyhop_cc::Instance;
use skyhop_tcp::TcpInfo;
use skyhop_units::{Duration, Instant};

use crate::path::{Path, module, ms};

const RTT_S: f64 = 0.040;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gain {
    Up,
    Down,
    Cruise,
}

#[derive(Debug, Clone, Copy)]
struct Phase {
    gain: Gain,
    from: Instant,
    to: Instant,
}

impl Phase {
    fn seconds(&self) -> f64 {
        (self.to - self.from).as_secs_f64()
    }
}

/// Run a flow in steady state, from 2 s until shortly before the first PROBE_RTT; return it with its cruising
/// rate.
fn steady() -> (Path<Instance>, f64) {
    let mut path = Path::new(module("bbr", &[]), ms(20)).with_bottleneck("50 Mbit/s", 330);
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(2));
    path.forget();
    path.run_for(ms(7500));
    let mut rates: Vec<u64> = path.trace.iter().filter_map(|(_, i)| i.pacing_rate).collect();
    rates.sort_unstable();
    let cruising = rates[rates.len() / 2] as f64;
    // The link rate's share of payload, less Linux's 1 %.
    let expected = 0.99 * 50e6 / 8.0 * 1448.0 / 1514.0;
    assert!((cruising / expected - 1.0).abs() < 0.02, "{cruising} for {expected}");
    (path, cruising)
}

/// Split the trace into stretches of equal gain, without the first and the last.
fn phases(trace: &[(Instant, TcpInfo)], cruising: f64) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    for &(at, info) in trace {
        let ratio = info.pacing_rate.expect("BBR paces") as f64 / cruising;
        let gain = match ratio {
            r if (r / 1.25 - 1.0).abs() < 0.03 => Gain::Up,
            r if (r / 0.75 - 1.0).abs() < 0.03 => Gain::Down,
            r if (r - 1.0).abs() < 0.03 => Gain::Cruise,
            _ => panic!("a gain of {ratio:.3} at {at}"),
        };
        match phases.last_mut() {
            Some(phase) if phase.gain == gain => phase.to = at,
            last => {
                if let Some(last) = last {
                    last.to = at;
                }
                phases.push(Phase { gain, from: at, to: at });
            }
        }
    }
    phases.pop();
    phases.split_off(1)
}

/// Gains of draft-cardwell-iccrg-bbr-congestion-control-00 4.3.4.1: 5/4, 3/4 and six times 1, a min_rtt each;
/// 5/4 lasts until the queue shows it or a min_rtt has passed, 3/4 ends early when the queue is gone.
#[test]
fn the_gain_goes_through_eight_phases() {
    let (path, cruising) = steady();
    let phases = phases(&path.trace, cruising);
    let ups = phases.iter().filter(|phase| phase.gain == Gain::Up).count();
    assert!(ups >= 15, "{ups} cycles in 7.5 s");
    for pair in phases.windows(2) {
        let next = match pair[0].gain {
            Gain::Up => Gain::Down,
            Gain::Down => Gain::Cruise,
            Gain::Cruise => Gain::Up,
        };
        assert_eq!(pair[1].gain, next, "after {:?}", pair[0]);
    }
    for phase in &phases {
        let round_trips = phase.seconds() / RTT_S;
        let expected = match phase.gain {
            Gain::Up => 1.0..2.1,
            Gain::Down => 0.2..1.3,
            Gain::Cruise => 6.0..6.5,
        };
        assert!(expected.contains(&round_trips), "{phase:?}: {round_trips:.2} round trips");
    }
}

/// The transmissions follow the gain: a quarter more, then a quarter less.
#[test]
fn the_segments_sent_follow_the_gain() {
    let (path, cruising) = steady();
    for (gain, factor) in [(Gain::Up, 1.25), (Gain::Down, 0.75), (Gain::Cruise, 1.0)] {
        let (mut sent, mut seconds) = (0, 0.0);
        for phase in phases(&path.trace, cruising).iter().filter(|phase| phase.gain == gain) {
            let inside = |at: &Instant| (phase.from..phase.to).contains(at);
            sent += path.sent.iter().filter(|(at, _)| inside(at)).count();
            seconds += phase.seconds();
        }
        let rate = sent as f64 * 1448.0 / seconds / cruising;
        assert!((rate / factor - 1.0).abs() < 0.06, "{gain:?}: {rate:.3} of the cruising rate");
    }
}
