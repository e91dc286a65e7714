//! Control interface between a service and its caller.

/// Callbacks by which the caller observes and ends a service.
pub trait ServiceControl {
    /// Report a condition about which the user should know; called once, when the condition becomes true.
    fn note(&mut self, note: &str);
    /// Whether the service shall end; polled a few times per second.
    fn interrupted(&mut self) -> bool;
}
