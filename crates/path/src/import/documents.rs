//! JSON of one or several documents: one after another, one per line, or in an array.

use serde::de::DeserializeOwned;
use serde_json::Deserializer;
use skyhop_model::one_line;

use super::account::Account;
use super::lines::{ImportError, MOST_SAMPLES};

/// Parse the documents of a file. The last of several may be cut off: a remark of the account says so. `expected` says
/// what the file should be.
pub(super) fn documents<T: DeserializeOwned>(
    bytes: &[u8],
    expected: &str,
    account: &mut Account,
) -> Result<Vec<T>, ImportError> {
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let is_between = |byte: &&u8| byte.is_ascii_whitespace() || b"[],".contains(byte);
        at += bytes[at..].iter().take_while(is_between).count();
        let mut rest = Deserializer::from_slice(&bytes[at..]).into_iter::<T>();
        match rest.next() {
            None => return Ok(found),
            Some(Ok(_)) if found.len() >= MOST_SAMPLES => {
                return Err(ImportError::whole(format!("more than {MOST_SAMPLES} documents")));
            }
            Some(Ok(document)) => found.push(document),
            Some(Err(error)) if error.is_eof() && !found.is_empty() => {
                account.notes.push("its last document is cut off".to_owned());
                return Ok(found);
            }
            Some(Err(error)) => {
                let before = bytes[..at].iter().filter(|byte| **byte == b'\n').count();
                let text = error.to_string();
                let reason = one_line(text.split(" at line ").next().unwrap_or_default());
                let line = before + error.line().max(1);
                return Err(ImportError::Line { line, what: format!("{expected}: {reason}") });
            }
        }
        at += rest.byte_offset();
    }
}
