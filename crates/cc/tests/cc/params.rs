//! Parameters by name, their errors, and the independence of instances.

use crate::path::Sender;
use skyhop_cc::{CcError, CongestionControl, Instance, Module, TcpSock};

fn cubic(params: &[(&str, &str)]) -> Result<Instance, CcError> {
    Instance::new(Module::find("cubic").unwrap(), params)
}

fn ssthresh_at_100(mut cc: Instance) -> u32 {
    let mut tp = TcpSock { tcp_mstamp: 1, ..TcpSock::default() };
    cc.init(&mut tp);
    tp.snd_cwnd = 100;
    cc.ssthresh(&mut tp)
}

#[test]
fn a_parameter_is_set_by_its_name() {
    assert_eq!(ssthresh_at_100(cubic(&[]).unwrap()), 70);
    assert_eq!(ssthresh_at_100(cubic(&[("beta", "0.7")]).unwrap()), 70);
    assert_eq!(ssthresh_at_100(cubic(&[("beta", "0.5")]).unwrap()), 50);
    assert_eq!(ssthresh_at_100(cubic(&[("c", "0.2"), ("beta", "0.9")]).unwrap()), 90);
}

#[test]
fn times_may_carry_a_unit() {
    let bbr = Module::find("bbr").unwrap();
    let window = bbr.params().find(|param| param.name == "min_rtt_window").unwrap();
    for (text, ms) in [("10000", 10_000), ("10 s", 10_000), ("2.5s", 2_500), ("300 ms", 300)] {
        assert_eq!(window.parse("bbr", text), Ok(ms), "{text}");
    }
    for text in ["10 packets", "0.5 us", "-1 s", "", "s", "1e99", "nan"] {
        assert!(window.parse("bbr", text).is_err(), "{text}");
    }
}

#[test]
fn a_time_may_be_negative_where_the_table_says_so() {
    let satpipe = Module::find("satpipe").unwrap();
    let start = satpipe.params().find(|param| param.name == "guard_start").unwrap();
    for (text, ms) in [("-15", -15), ("-50 ms", -50), ("-0.1 s", -100), ("15 ms", 15), ("0", 0)] {
        assert_eq!(start.parse("satpipe", text), Ok(ms), "{text}");
    }
    assert_eq!(start.text_of(-15), "-15");
    let message = start.parse("satpipe", "-11 s").unwrap_err().to_string();
    assert_eq!(
        message,
        "satpipe.guard_start = \"-11 s\": expected a whole number from -10000 to 10000 ms"
    );
    let values = satpipe.values(&[("guard_start", "-15 ms")]).unwrap();
    assert!(values.contains(&(-15_i64 as u64)), "the C file reads two's complement: {values:?}");
}

#[test]
fn mistakes_are_named() {
    let message = |params: &[(&str, &str)]| cubic(params).unwrap_err().to_string();
    assert_eq!(
        message(&[("beta", "1.5")]),
        "cubic.beta = \"1.5\": expected a number from 0.5000 to 0.9990"
    );
    assert_eq!(
        message(&[("beta", "fast")]),
        "cubic.beta = \"fast\": expected a number from 0.5000 to 0.9990"
    );
    assert_eq!(
        message(&[("hystart", "0.5")]),
        "cubic.hystart = \"0.5\": expected a whole number from 0 to 1"
    );
    assert_eq!(message(&[("c", "0.4"), ("c", "0.4")]), "cubic.c is given twice; give it once");
    let unknown = message(&[("betta", "0.7")]);
    assert!(
        unknown.starts_with(
            "cubic has no parameter \"betta\" (did you mean beta?); it has: beta, c, "
        ),
        "{unknown}"
    );
    let none = Instance::new(Module::find("reno").unwrap(), &[("beta", "1")]).unwrap_err();
    assert_eq!(none.to_string(), "reno has no parameter \"beta\"; it has: none");
    let absent = Module::find("warp").unwrap_err().to_string();
    assert!(
        absent.starts_with("no congestion control is called \"warp\"; there are: "),
        "{absent}"
    );
}

#[test]
fn instances_share_nothing() {
    let new = |module: &Module, seed| {
        let module = Module::find(module.name()).unwrap();
        Sender::new(Instance::new(module, &[]).unwrap().with_seed(seed), 100, 30_000)
    };
    for module in Module::all() {
        let alone = new(module, 1).run_until(6_000_000);
        let (mut one, mut other) = (new(module, 1), new(module, 2));
        other.tx_us = 300;
        let mut together = Vec::new();
        for step in 1..=60 {
            together.extend(one.run_until(step * 100_000));
            other.run_until(step * 100_000);
        }
        assert_eq!(alone, together, "{}", module.name());
    }
}
