//! What services of this machine ask their caller.

/// How the caller follows a service and ends it.
pub trait ServiceControl {
    /// Something that a user should know; each once when it becomes true.
    fn note(&mut self, note: &str);
    /// Polled a few times per second; once it returns true the service ends.
    fn interrupted(&mut self) -> bool;
}
