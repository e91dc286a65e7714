//! The congestion controls of a flow's connections.

use skyhop_app::Side;
use skyhop_cc::{CcError, Controller, Registry, Setup};
use skyhop_engine::Unsupported;
use skyhop_experiment::seed_for;

/// Makes one for each end of each of a flow's connections.
pub(crate) struct Controllers {
    cc: String,
    parameters: Vec<(String, String)>,
    /// Their clock's ticks per second.
    hz: u32,
    seed: u64,
    /// The first one, made beforehand to find out whether it can be.
    first: Option<Controller>,
}

impl Controllers {
    /// For the flow with this id; `seed` is that of its first connection's client.
    ///
    /// # Errors
    /// There is no such congestion control, or not with these parameters.
    pub(crate) fn new(
        id: u32,
        cc: &str,
        parameters: Vec<(String, String)>,
        hz: u32,
        seed: u64,
    ) -> Result<Self, Unsupported> {
        let mut controllers = Self { cc: cc.to_owned(), parameters, hz, seed, first: None };
        let first = controllers
            .start(seed)
            .map_err(|e| Unsupported::new(format!("flow.{id}.cc"), e.to_string()))?;
        controllers.first = Some(first);
        Ok(controllers)
    }

    /// That of an end of the connection with this number.
    pub(crate) fn make(&mut self, number: u32, side: Side) -> Controller {
        let first = if (number, side) == (0, Side::Client) { self.first.take() } else { None };
        first.unwrap_or_else(|| {
            let seed = seed_for(self.seed, &format!("{side:?} {number}"));
            self.start(seed).expect("the first could be made")
        })
    }

    fn start(&self, seed: u64) -> Result<Controller, CcError> {
        let params: Vec<(&str, &str)> =
            self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let setup = Setup { params: &params, seed, hz: self.hz };
        Registry::global().start(&self.cc, &setup, &skyhop_tcp::CALLER)
    }
}
