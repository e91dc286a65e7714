//! Controller in Rust with a fixed window. The tests of crates/tcp and crates/sim use it, too.

use skyhop_cc::{
    CcError, CongestionControl, Controller, Param, RateSample, Registry, Setup, TcpSock,
};

/// Controller whose window always is the value of its parameter, in packets.
#[derive(Debug)]
pub struct FixedWindow {
    packets: u32,
}

const PARAMS: [Param; 1] = [Param {
    name: "packets",
    unit: "packets",
    about: "the window",
    scale: 1,
    initial: 400,
    least: 2,
    most: 1_000_000,
}];

impl FixedWindow {
    fn start(setup: &Setup<'_>) -> Result<Controller, CcError> {
        let values = Param::values("fixed", &PARAMS, setup.params)?;
        Ok(Box::new(Self { packets: values[0] as u32 }))
    }

    /// Register the controller as "fixed".
    pub fn join(registry: &Registry) {
        registry.register("fixed", Self::start).expect("none is called fixed yet");
    }

    fn set(&self, tp: &mut TcpSock) {
        tp.snd_cwnd = self.packets.min(tp.snd_cwnd_clamp);
    }
}

impl CongestionControl for FixedWindow {
    fn init(&mut self, tp: &mut TcpSock) {
        self.set(tp);
    }

    fn has_cong_control(&self) -> bool {
        true
    }

    fn cong_control(&mut self, tp: &mut TcpSock, _: u32, _: u32, _: &RateSample) {
        self.set(tp);
    }

    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32 {
        tp.snd_ssthresh
    }

    fn undo_cwnd(&mut self, _: &mut TcpSock) -> u32 {
        self.packets
    }
}
