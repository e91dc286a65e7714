//! Links emulated by Linux's queue disciplines, for runs in a guest. Where the disciplines can implement the
//! scenario, packets stay in the kernel, so that a run takes a fraction of the time.

mod child_qdisc;
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

/// Choice of a run's link emulator.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// Settings of Linux's disciplines; `None` for skyhop's links.
    pub(crate) tc: Option<TcPlan>,
    /// Reason why Linux's disciplines cannot be used, if the scenario has `linux.link = "auto"`.
    pub(crate) against: Option<String>,
}

/// Choose the link emulator for an experiment.
///
/// # Errors
/// The scenario has `linux.link = "tc"` and a feature that Linux's disciplines lack.
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
                "{what}; linux.link = \"tc\" does not support that: use \"auto\" or \"skyhop\""
            );
            Err(Unsupported::new(key, what))
        }
    }
}

/// Choose the link emulator as [`choose`] does, and try the disciplines in this kernel.
///
/// # Errors
/// The scenario has `linux.link = "tc"`, and this kernel lacks a discipline or does not allow the trial.
pub(crate) fn choose_here(
    experiment: &Experiment,
    options: &LiveOptions,
) -> Result<Choice, HostError> {
    let choice =
        choose(experiment, options).map_err(|error| HostError::Unsupported(error.to_string()))?;
    match choice.tc.as_ref().map(TcPlan::check_support) {
        Some(Err(error)) if experiment.linux_link == LinuxLink::Auto => {
            Ok(Choice { tc: None, against: Some(format!("linux.link: {error}")) })
        }
        Some(Err(error)) => Err(HostError::Unsupported(format!(
            "linux.link: {error}; build the kernel with this queue discipline, or set linux.link to \"auto\""
        ))),
        _ => Ok(choice),
    }
}
