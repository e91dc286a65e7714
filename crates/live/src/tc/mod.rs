//! Links of Linux's own disciplines, for runs in a guest: where they do what the scenario asks for, packets cross the
//! kernel alone, which takes a fraction of the time.

mod children;
mod disciplines;
mod links;
mod plan;

use skyhop_engine::Unsupported;
use skyhop_experiment::Experiment;
use skyhop_host::HostError;
use skyhop_model::LinuxLink;

pub(crate) use self::links::{RunningTc, TcLinks};
pub(crate) use self::plan::TcPlan;
use crate::LiveOptions;

/// What carries a run's packets.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// What Linux's disciplines are set to; `None` where skyhop's links carry them.
    pub(crate) tc: Option<TcPlan>,
    /// What stands against them where the scenario leaves the choice to the engine.
    pub(crate) against: Option<String>,
}

/// Chooses what carries packets.
///
/// # Errors
/// The scenario asks for Linux's disciplines, and for something that they do not do.
pub(crate) fn choose(
    experiment: &Experiment,
    options: &LiveOptions,
) -> Result<Choice, Unsupported> {
    if options.guest.is_none() || experiment.linux_link == LinuxLink::Skyhop {
        return Ok(Choice::default());
    }
    let planned = if options.internet {
        Err(Unsupported::new("--internet", "it leads out of the guest"))
    } else {
        TcPlan::new(experiment)
    };
    match planned {
        Ok(plan) => Ok(Choice { tc: Some(plan), against: None }),
        Err(against) if experiment.linux_link == LinuxLink::Auto => {
            Ok(Choice { tc: None, against: Some(against.to_string()) })
        }
        Err(Unsupported { key, what }) => {
            let what = format!(
                "{what}; linux.link = \"tc\" does not do that: \"auto\" or \"skyhop\" does"
            );
            Err(Unsupported::new(key, what))
        }
    }
}

/// Chooses likewise, and tries it out.
///
/// # Errors
/// The scenario asks for Linux's disciplines, and this kernel lacks one, or it may not be tried.
pub(crate) fn choose_here(
    experiment: &Experiment,
    options: &LiveOptions,
) -> Result<Choice, HostError> {
    let choice =
        choose(experiment, options).map_err(|error| HostError::Unsupported(error.to_string()))?;
    match choice.tc.as_ref().map(TcPlan::try_out) {
        Some(Err(error)) if experiment.linux_link == LinuxLink::Auto => {
            Ok(Choice { tc: None, against: Some(format!("linux.link: {error}")) })
        }
        Some(Err(error)) => Err(HostError::Unsupported(format!(
            "linux.link: {error}; build the kernel with its disciplines, or set it to \"auto\""
        ))),
        _ => Ok(choice),
    }
}
