//! Tick rate of the kernel (CONFIG_HZ).

use nix::time::{ClockId, clock_getres};

use crate::error::{Context, KernelError};

/// Ticks per second of jiffies (CONFIG_HZ), from the resolution of the coarse clock, which advances
/// once per tick.
///
/// # Errors
/// The kernel has no coarse clock.
pub fn ticks_per_second() -> Result<u32, KernelError> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE)
        .context("cannot read the resolution of CLOCK_MONOTONIC_COARSE")?;
    let tick_ns = tick.tv_sec() * 1_000_000_000 + tick.tv_nsec();
    let hz = (1_000_000_000 + tick_ns / 2).checked_div(tick_ns);
    hz.and_then(|hz| u32::try_from(hz).ok())
        .filter(|hz| *hz > 0)
        .ok_or("it is zero")
        .context("cannot use the resolution of CLOCK_MONOTONIC_COARSE")
}
