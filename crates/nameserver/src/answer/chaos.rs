//! What a server says of itself, in class CH: its version and its identifier (RFC 4892).

use dns::edns::ExtendedError;
use dns::writer::Full;
use dns::{Class, Rtype};

use super::response::Response;

/// What `version.bind` and `version.server` are answered.
const VERSION: &str = concat!("Pointsman ", env!("CARGO_PKG_VERSION"));

impl Response<'_> {
    /// The text that a name of class CH stands for; refused where it is hidden, or another name.
    pub(super) fn chaos(&mut self) -> Result<(), Full> {
        let settings = &self.generation.settings;
        let text = match self.query.name.wire() {
            b"\x07version\x04bind\0" | b"\x07version\x06server\0" => {
                (!settings.hide_version).then_some(VERSION)
            }
            b"\x02id\x06server\0" | b"\x08hostname\x04bind\0" => settings.nsid.as_deref(),
            _ => return self.refused(ExtendedError::NotSupported),
        };
        let Some(text) = text else { return self.refused(ExtendedError::Prohibited) };
        self.end.authoritative = true;
        self.note_name();
        match self.query.rtype {
            Rtype::TXT | Rtype::ANY => self.writer.answer_text(Class::CH, text.as_bytes()),
            _ => Ok(()),
        }
    }
}
