//! Table I of SaTCP, San Diego to New York over bent pipes: four minutes of its orbit, or up to all of it in
//! `make soak`. The results are in docs/results/reproduced/satcp.md.

use std::ops::ControlFlow;

use skyhop_orbit::Geodetic;
use skyhop_path::Place;
use skyhop_scenario::parse_scenario;
use skyhop_sim::Simulator;

/// End points of LeoEM (from the published logs).
fn place(name: &str) -> Result<Place, String> {
    let (latitude_deg, longitude_deg) = match name {
        "San Diego" => (32.881, -117.237),
        _ => (40.845, -73.932),
    };
    let position = Geodetic { latitude_deg, longitude_deg, altitude_m: 0.0 };
    Ok(Place { name: name.to_owned(), position })
}

const ORBIT_S: u32 = 5731;

/// Goodput of a flow in Mbit/s.
fn goodput_mbps(flow: &str, signal: &str) -> f64 {
    let duration_s = skyhop_needs::cases(240).min(ORBIT_S);
    let text = format!(
        "[path]\nconstellation = \"leoem-starlink\"\nfrom = \"San Diego\"\nto = \"New York\"\n\
         relay = \"bent-pipe\"\ncompat = \"leoem\"\n[link]\nrate = \"150 Mbit/s\"\nqueue = \"5 MB\"\n\
         [run]\nduration = \"{duration_s} s\"\nsample = \"1 s\"\n[signal]\n{signal}\n[[flow]]\n{flow}"
    );
    let experiment = parse_scenario(&text, "x.toml", &[])
        .unwrap()
        .experiment(&place, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    let data = skyhop_engine::run_in_memory(&Simulator, &experiment).unwrap();
    data.summary.flows[0].goodput_bps as f64 / 1e6
}

fn satcp_mbps(hold: &str, lead: &str) -> f64 {
    let flow = format!("cc = \"satcp\"\nsatcp.hold = \"{hold}\"");
    let signal = format!("source = \"path\"\nlead = \"{lead}\"\nerror = \"report-timing\"");
    goodput_mbps(&flow, &signal)
}

#[test]
fn a_longer_hold_gets_more_of_a_fragile_path() {
    let cubic = goodput_mbps("cc = \"cubic\"", "");
    let bbr = goodput_mbps("cc = \"bbr\"", "");
    let satcp = [("0.3 s", "0 s"), ("0.9 s", "0.3 s"), ("1.3 s", "0.5 s")]
        .map(|(hold, lead)| satcp_mbps(hold, lead));
    let found = format!("CUBIC {cubic:.1}, SaTCP {satcp:.1?}, BBR {bbr:.1} Mbit/s");
    println!("{found}");
    assert!(cubic < 0.45 * 150.0, "{found}");
    assert!(bbr > 0.85 * 150.0, "{found}");
    assert!(satcp.is_sorted() && satcp[0] > 1.2 * cubic && satcp[2] > 2.2 * cubic, "{found}");
}
