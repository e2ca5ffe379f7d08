//! Signing and verifying messages (RFC 8945 §4.3, §5). Pure: time and keys are arguments.
//!
//! The `domain` crate has this too, but answers BADSIG with FORMERR and signs the time of BADTIME in eight octets
//! instead of six (seen in 0.12.3), which no client verifies. It is the judge of the rest in the tests.

use std::hint::black_box;
use std::sync::Arc;

use dns::Tsig;
use dns::query::HEADER;
use ring::hmac::{Context, Tag};

use super::keys::{Key, Keys};

/// By how many seconds clocks may differ, as RFC 8945 §10 recommends.
pub const FUDGE: u16 = 300;

/// The TSIG errors that are sent (RFC 8945 §3).
const BADSIG: u16 = 16;
const BADKEY: u16 = 17;
const BADTIME: u16 = 18;
const BADTRUNC: u16 = 22;

/// Why a signed message is not believed.
#[derive(Clone, Debug)]
pub enum Failed {
    /// The length of the code is one that cannot be: FORMERR (RFC 8945 §5.2.2.1).
    Malformed,
    /// The key, or the algorithm with it, is not known.
    BadKey,
    /// The code is wrong.
    BadSignature,
    /// The code is right and too short: only whole ones are taken; the answer is signed by this.
    BadTruncation(Signer),
    /// It was signed at another time; the answer is signed by this.
    BadTime(Signer),
}

impl Failed {
    /// The error as the TSIG record of an answer has it; 0 where there is to be no such record.
    fn code(&self) -> u16 {
        match self {
            Failed::Malformed => 0,
            Failed::BadKey => BADKEY,
            Failed::BadSignature => BADSIG,
            Failed::BadTruncation(_) => BADTRUNC,
            Failed::BadTime(_) => BADTIME,
        }
    }
}

/// Signs one message after the other with a key, each bound to what went before: the request, then the messages of
/// its answer (RFC 8945 §5.3.1).
#[derive(Clone)]
pub struct Signer {
    key: Arc<Key>,
    prior: Option<Sent>,
    is_first: bool,
}

/// A code, and how many of its octets went out: the next one is bound to those.
type Sent = (Tag, usize);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.key)
    }
}

impl Signer {
    /// Signs a request of ours.
    pub fn request(key: Arc<Key>) -> Signer {
        Signer { key, prior: None, is_first: true }
    }

    /// The key.
    pub fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// The octets that signing adds to a message.
    pub fn room(&self) -> usize {
        let stamp = Stamp { time: 0, fudge: 0, error: 0, other: &[] };
        record(&self.key, &stamp).written() + self.key.algorithm().code_length()
    }

    /// Signs the message of `length` octets in `out`; returns its new length.
    ///
    /// `unix` is the time in seconds. `None` where there is no [`Signer::room`].
    pub fn sign(&mut self, out: &mut [u8], length: usize, unix: u64) -> Option<usize> {
        self.sign_with(out, length, Stamp { time: unix, fudge: FUDGE, error: 0, other: &[] })
    }

    /// What verifies the answer to the request that was signed last, where that may be many messages.
    pub fn verifier(&self) -> Verifier {
        let context = begun(&self.key, self.prior.as_ref());
        Verifier { key: Arc::clone(&self.key), context, is_first: true, unsigned: 0 }
    }

    /// Verifies the answer to the request that was signed last.
    ///
    /// # Errors
    /// What is wrong.
    pub fn verify_answer(&self, message: &[u8], tsig: &Tsig<'_>, unix: u64) -> Result<(), Failed> {
        let is_ours = self.key.name().eq_ignore_ascii_case(&tsig.key)
            && self.key.algorithm().wire().eq_ignore_ascii_case(tsig.algorithm);
        if !is_ours {
            return Err(Failed::BadKey);
        }
        check(&self.key, self.prior.as_ref(), message, tsig, unix).map(|_| ())
    }

    fn sign_with(&mut self, out: &mut [u8], length: usize, stamp: Stamp<'_>) -> Option<usize> {
        let head: [u8; HEADER] = *out.first_chunk()?;
        let original_id = u16::from_be_bytes([head[0], head[1]]);
        let key = Arc::clone(&self.key);
        let record = Tsig { original_id, ..record(&key, &stamp) };
        let variables = if self.is_first { Variables::All } else { Variables::Timers };
        let context = begun(&key, self.prior.as_ref());
        let code = code(context, &key, &head, out.get(HEADER..length)?, &record, variables);
        let length = Tsig { mac: code.as_ref(), ..record }.append(out, length)?;
        (self.prior, self.is_first) = (Some((code, code.as_ref().len())), false);
        Some(length)
    }
}

/// How many messages in a row may be unsigned between two that are signed (RFC 8945 §5.3.1).
const UNSIGNED_MAX: u32 = 99;

/// Verifies the messages of one answer, of which only some are signed, the first and the last among them (RFC 8945 §5.3.1).
#[derive(Clone)]
pub struct Verifier {
    key: Arc<Key>,
    /// What the next signature is to be bound to: the one before it, and the messages since.
    context: Context,
    is_first: bool,
    unsigned: u32,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.key)
    }
}

impl Verifier {
    /// Verifies the next message. One without signature is right only if a later one is.
    ///
    /// # Errors
    /// Why it is not believed, as the end of a sentence about the answer.
    pub fn take(&mut self, message: &[u8], unix: u64) -> Result<(), &'static str> {
        let tsig = Tsig::read(message).map_err(|_| "has a malformed signature")?;
        let Some(tsig) = tsig else {
            self.unsigned += 1;
            self.context.update(message);
            let is_wrong = self.is_first || self.unsigned > UNSIGNED_MAX;
            return if is_wrong { Err("is not signed") } else { Ok(()) };
        };
        let is_ours = self.key.name().eq_ignore_ascii_case(&tsig.key)
            && self.key.algorithm().wire().eq_ignore_ascii_case(tsig.algorithm);
        if !is_ours {
            return Err("is signed with another key");
        }
        let variables = if self.is_first { Variables::All } else { Variables::Timers };
        let (head, body) = signed(message, &tsig).ok_or("has a malformed signature")?;
        let code = code(self.context.clone(), &self.key, &head, body, &tsig, variables);
        if !is_equal(code.as_ref(), tsig.mac) {
            return Err("has a wrong signature");
        }
        if unix.abs_diff(tsig.time) > u64::from(tsig.fudge) {
            return Err("is signed at another time: one of the clocks is wrong");
        }
        (self.context, self.is_first) = (begun(&self.key, Some(&(code, tsig.mac.len()))), false);
        self.unsigned = 0;
        Ok(())
    }

    /// Whether all that came is signed, so that the answer may end here.
    pub fn is_whole(&self) -> bool {
        !self.is_first && self.unsigned == 0
    }
}

/// What is signed beside the message, and differs from one to the next.
struct Stamp<'a> {
    time: u64,
    fudge: u16,
    error: u16,
    other: &'a [u8],
}

/// A record without code and id.
fn record<'a>(key: &'a Key, stamp: &Stamp<'a>) -> Tsig<'a> {
    let Stamp { time, fudge, error, other } = *stamp;
    let (name, algorithm) = (key.name().into(), key.algorithm().wire());
    Tsig { start: 0, key: name, algorithm, time, fudge, mac: &[], original_id: 0, error, other }
}

/// Verifies a signed request; returns what signs its answer.
///
/// `unix` is the time in seconds.
///
/// # Errors
/// [`Failed`], in the order of RFC 8945 §5.2: key, code, time, length of the code.
pub fn verify(message: &[u8], tsig: &Tsig<'_>, keys: &Keys, unix: u64) -> Result<Signer, Failed> {
    let key = keys.find(&tsig.key, tsig.algorithm).ok_or(Failed::BadKey)?;
    check(key, None, message, tsig, unix)
}

/// Makes the message in `out`, a header and question of `length` octets, tell the failure; returns its new length.
///
/// `None` where there is no room, or [`Failed::Malformed`], which has no record.
pub fn tell(out: &mut [u8], length: usize, failed: Failed, tsig: &Tsig<'_>, unix: u64) -> Option<usize> {
    let error = failed.code();
    let original_id = u16::from_be_bytes(*out.first_chunk()?);
    match failed {
        Failed::Malformed => None,
        // These are signed: sender and receiver have the same key (RFC 8945 §5.3.2).
        Failed::BadTime(mut signer) => {
            let now = unix.to_be_bytes();
            let stamp = Stamp { time: tsig.time, fudge: tsig.fudge, error, other: &now[2..] };
            signer.sign_with(out, length, stamp)
        }
        Failed::BadTruncation(mut signer) => {
            signer.sign_with(out, length, Stamp { time: unix, fudge: FUDGE, error, other: &[] })
        }
        Failed::BadKey | Failed::BadSignature => {
            Tsig { start: length, mac: &[], original_id, error, other: &[], ..tsig.clone() }
                .append(out, length)
        }
    }
}

fn check(
    key: &Arc<Key>,
    prior: Option<&Sent>,
    message: &[u8],
    tsig: &Tsig<'_>,
    unix: u64,
) -> Result<Signer, Failed> {
    let whole = key.algorithm().code_length();
    if tsig.mac.len() > whole || tsig.mac.len() < (whole / 2).max(10) {
        return Err(Failed::Malformed);
    }
    let (head, body) = signed(message, tsig).ok_or(Failed::Malformed)?;
    let code = code(begun(key, prior), key, &head, body, tsig, Variables::All);
    if !is_equal(&code.as_ref()[..tsig.mac.len()], tsig.mac) {
        return Err(Failed::BadSignature);
    }
    let signer = Signer { key: Arc::clone(key), prior: Some((code, tsig.mac.len())), is_first: true };
    if unix.abs_diff(tsig.time) > u64::from(tsig.fudge) {
        return Err(Failed::BadTime(signer));
    }
    if tsig.mac.len() < whole {
        return Err(Failed::BadTruncation(signer));
    }
    Ok(signer)
}

/// How much of the TSIG record is signed with the message.
#[derive(Clone, Copy)]
enum Variables {
    /// All of RFC 8945 §4.3.3.
    All,
    /// The time alone, in the second and later messages of an answer (§5.3.1).
    Timers,
}

/// What was signed: header and body as they were before the record was added.
fn signed<'m>(message: &'m [u8], tsig: &Tsig<'_>) -> Option<([u8; HEADER], &'m [u8])> {
    let mut head = *message.first_chunk::<HEADER>()?;
    head[..2].copy_from_slice(&tsig.original_id.to_be_bytes());
    let count = u16::from_be_bytes([head[10], head[11]]).checked_sub(1)?;
    head[10..].copy_from_slice(&count.to_be_bytes());
    Some((head, message.get(HEADER..tsig.start)?))
}

/// The beginning of a code that is bound to the one before it.
fn begun(key: &Key, prior: Option<&Sent>) -> Context {
    let mut context = key.context();
    if let Some((prior, sent)) = prior {
        context.update(&(*sent as u16).to_be_bytes());
        context.update(&prior.as_ref()[..*sent]);
    }
    context
}

fn code(
    mut context: Context,
    key: &Key,
    head: &[u8; HEADER],
    body: &[u8],
    tsig: &Tsig<'_>,
    variables: Variables,
) -> Tag {
    context.update(head);
    context.update(body);
    let time = &tsig.time.to_be_bytes()[2..];
    if let Variables::All = variables {
        context.update(key.name());
        context.update(&[0, 255, 0, 0, 0, 0]);
        context.update(key.algorithm().wire());
    }
    context.update(time);
    context.update(&tsig.fudge.to_be_bytes());
    if let Variables::All = variables {
        context.update(&tsig.error.to_be_bytes());
        context.update(&(tsig.other.len() as u16).to_be_bytes());
        context.update(tsig.other);
    }
    context.sign()
}

/// Compares codes in a time that does not tell where they differ.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len()
        && black_box(a.iter().zip(b).fold(0, |differs, (a, b)| differs | black_box(a ^ b))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::keys::Algorithm;
    use domain::base::iana::Rtype;
    use domain::base::{Message, MessageBuilder, Name};
    use domain::rdata::tsig::Time48;
    use domain::tsig::{self, ClientSequence, ClientTransaction, ValidationError};
    use proptest::prelude::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
    const NOW: u64 = 1_700_000_000;
    const ALL: [(Algorithm, tsig::Algorithm); 4] = [
        (Algorithm::Sha1, tsig::Algorithm::Sha1),
        (Algorithm::Sha256, tsig::Algorithm::Sha256),
        (Algorithm::Sha384, tsig::Algorithm::Sha384),
        (Algorithm::Sha512, tsig::Algorithm::Sha512),
    ];

    fn theirs(algorithm: tsig::Algorithm) -> tsig::Key {
        let name: tsig::KeyName = "ns2.example".parse().unwrap();
        tsig::Key::new(algorithm, SECRET, name, None, None).unwrap()
    }

    fn keys() -> Keys {
        let mut keys = Keys::default();
        keys.read("k", "hmac-sha256:ns2.example:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").unwrap();
        keys
    }

    fn keys_of(algorithm: Algorithm) -> Keys {
        let line = format!("{}:ns2.example:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", algorithm.text());
        let mut keys = Keys::default();
        keys.read("k", &line).unwrap();
        keys
    }

    fn asked() -> domain::base::message_builder::AdditionalBuilder<Vec<u8>> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(77);
        let mut builder = builder.question();
        builder.push((&"example".parse::<Name<Vec<u8>>>().unwrap(), Rtype::AXFR)).unwrap();
        builder.additional()
    }

    fn response() -> Vec<u8> {
        let mut response = asked().finish();
        response[2] |= 0x80;
        response
    }

    fn signed(signer: &mut Signer, message: &[u8], now: u64) -> Vec<u8> {
        let mut out = vec![0; message.len() + signer.room()];
        out[..message.len()].copy_from_slice(message);
        assert_eq!(signer.sign(&mut out, message.len(), now), Some(out.len()), "the room is right");
        out
    }

    fn verified(message: &[u8], keys: &Keys, now: u64) -> Result<Signer, Failed> {
        let tsig = Tsig::read(message).unwrap().unwrap();
        verify(message, &tsig, keys, now)
    }

    #[test]
    fn domain_and_we_believe_each_other() {
        for (ours, algorithm) in ALL {
            let mut request = asked();
            let mut client =
                ClientSequence::request(theirs(algorithm), &mut request, Time48::from_u64(NOW)).unwrap();
            let mut signer = verified(&request.finish(), &keys_of(ours), NOW + 300).expect("it is right");
            for later in 0..5 {
                let out = signed(&mut signer, &response(), NOW + later);
                let mut message = Message::from_octets(out).unwrap();
                client.answer(&mut message, Time48::from_u64(NOW)).expect("each message is signed");
                assert_eq!(message.as_slice()[10..12], [0, 0]);
            }
            client.done().expect("the last one is signed");
        }
    }

    #[test]
    fn our_requests_are_believed_and_their_answers() {
        let mut signer = Signer::request(keys().named("ns2.example").unwrap().clone());
        let request = signed(&mut signer, &asked().finish(), NOW);
        let mut answerer = verified(&request, &keys(), NOW).expect("it is right");
        let answer = signed(&mut answerer, &response(), NOW);
        let tsig = Tsig::read(&answer).unwrap().unwrap();
        assert!(signer.verify_answer(&answer, &tsig, NOW).is_ok());
        let mut other = answer.clone();
        other[3] ^= 1;
        assert!(matches!(signer.verify_answer(&other, &tsig, NOW), Err(Failed::BadSignature)));
        let mut unbound = Signer::request(keys().named("ns2.example").unwrap().clone());
        let replayed = signed(&mut unbound, &response(), NOW);
        let tsig = Tsig::read(&replayed).unwrap().unwrap();
        assert!(signer.verify_answer(&replayed, &tsig, NOW).is_err(), "the answer to another request");
    }

    /// An answer of five messages to a request of ours, of which only the first, the third and the last are signed.
    fn sparsely_signed() -> (Verifier, Vec<Vec<u8>>) {
        let mut asker = Signer::request(keys().named("ns2.example").unwrap().clone());
        let request = signed(&mut asker, &asked().finish(), NOW);
        let mut answerer = verified(&request, &keys(), NOW).expect("it is right");
        let mut messages = vec![signed(&mut answerer, &response(), NOW)];
        for unsigned in [1, 1] {
            // As `Signer` does, with what went out unsigned in between.
            let between = vec![response(); unsigned];
            let mut context = begun(&answerer.key, answerer.prior.as_ref());
            between.iter().for_each(|message| context.update(message));
            messages.extend(between);
            let plain = response();
            let stamp = Stamp { time: NOW, fudge: FUDGE, error: 0, other: &[] };
            let key = answerer.key.clone();
            let tsig = Tsig { original_id: 77, ..record(&key, &stamp) };
            let head: &[u8; HEADER] = plain.first_chunk().unwrap();
            let code = code(context, &key, head, &plain[HEADER..], &tsig, Variables::Timers);
            let mut out = vec![0; plain.len() + answerer.room()];
            out[..plain.len()].copy_from_slice(&plain);
            Tsig { mac: code.as_ref(), ..tsig }.append(&mut out, plain.len()).expect("there is room");
            answerer.prior = Some((code, code.as_ref().len()));
            messages.push(out);
        }
        (asker.verifier(), messages)
    }

    #[test]
    fn an_answer_of_many_messages_is_believed_as_a_whole_only() {
        let (mut verifier, messages) = sparsely_signed();
        for (at, message) in messages.iter().enumerate() {
            assert_eq!(verifier.take(message, NOW), Ok(()), "message {at}");
            assert_eq!(verifier.is_whole(), [0, 2, 4].contains(&at), "message {at}");
        }
        // Each octet behind the id counts, also of what is not signed itself.
        for (at, message) in messages.iter().enumerate() {
            let signed = Tsig::read(message).unwrap().map_or(message.len(), |tsig| tsig.start);
            for place in 2..signed {
                let (mut verifier, mut changed) = sparsely_signed();
                changed[at][place] ^= 1;
                let all = changed.iter().try_for_each(|message| verifier.take(message, NOW));
                assert!(all.is_err() || !verifier.is_whole(), "message {at}, octet {place}");
            }
        }
        for gone in 0..4 {
            let (mut verifier, mut fewer) = sparsely_signed();
            fewer.remove(gone);
            assert!(
                fewer.iter().try_for_each(|message| verifier.take(message, NOW)).is_err(),
                "without {gone}"
            );
        }
        let (mut verifier, messages) = sparsely_signed();
        assert_eq!(verifier.take(&response(), NOW), Err("is not signed"), "the first must be");
        let (mut late, _) = sparsely_signed();
        let wrong_clock = Err("is signed at another time: one of the clocks is wrong");
        assert_eq!(late.take(&messages[0], NOW + 301), wrong_clock);
        let (mut verifier, messages) = sparsely_signed();
        verifier.take(&messages[0], NOW).expect("it is signed");
        let unsigned = (0..=UNSIGNED_MAX).map(|_| verifier.take(&response(), NOW)).filter(Result::is_err);
        assert_eq!(unsigned.count(), 1, "only so many may be unsigned");
    }

    #[test]
    fn what_is_wrong_is_told_by_its_code() {
        let sign = |time: u64| {
            let mut request = asked();
            let key = theirs(tsig::Algorithm::Sha256);
            let client = ClientTransaction::request(key, &mut request, Time48::from_u64(time)).unwrap();
            (request.finish(), client)
        };
        let (good, _) = sign(NOW);
        let tell_of = |request: &[u8], keys: &Keys, now: u64| {
            let tsig = Tsig::read(request).unwrap().unwrap();
            let failed = verify(request, &tsig, keys, now).expect_err("it is wrong");
            let mut out = vec![0; 1000];
            let plain = response();
            out[..plain.len()].copy_from_slice(&plain);
            out[3] = 9;
            let length = tell(&mut out, plain.len(), failed, &tsig, now)?;
            out.truncate(length);
            Some(out)
        };
        let error = |out: &Option<Vec<u8>>| {
            out.as_ref().map(|out| Tsig::read(out).unwrap().unwrap()).map(|tsig| (tsig.error, tsig.mac.len()))
        };
        assert_eq!(error(&tell_of(&good, &Keys::default(), NOW)), Some((BADKEY, 0)));
        let mut changed = good.clone();
        changed[13] ^= 0x20;
        assert_eq!(error(&tell_of(&changed, &keys(), NOW)), Some((BADSIG, 0)), "even the case is signed");

        // A shorter code: MAC size and RDLENGTH less by ten, the octets taken out.
        let tsig = Tsig::read(&good).unwrap().unwrap();
        let data = tsig.start + tsig.key.len() + 8;
        let mac = data + 2 + tsig.algorithm.len() + 8;
        for (left, expected) in [(22, Some((BADTRUNC, 32))), (15, None), (0, None)] {
            let mut sender = Signer::request(keys().named("ns2.example").unwrap().clone());
            let mut cut = signed(&mut sender, &asked().finish(), NOW);
            let taken = 32 - left;
            cut[data + 1] -= taken as u8;
            cut[mac + 1] = left as u8;
            cut.drain(mac + 2 + left..mac + 2 + 32);
            for (now, expected) in [(NOW, expected), (NOW + 301, expected.map(|_| (BADTIME, 32)))] {
                let told = tell_of(&cut, &keys(), now);
                assert_eq!(error(&told), expected, "{left} octets");
                // The sender believes it: it knows how much of its code it sent.
                sender.prior.as_mut().expect("it has signed").1 = left;
                if let Some(told) = told {
                    let tsig = Tsig::read(&told).unwrap().unwrap();
                    assert!(sender.verify_answer(&told, &tsig, NOW).is_ok(), "{left} octets");
                }
            }
        }

        for late in [NOW + 301, NOW - 301] {
            let told = tell_of(&good, &keys(), late);
            assert_eq!(error(&told), Some((BADTIME, 32)));
            let told = told.unwrap();
            let tsig = Tsig::read(&told).unwrap().unwrap();
            assert_eq!((tsig.time, tsig.other), (NOW, &late.to_be_bytes()[2..]));
            // The sender believes it, by its own time.
            let mut sender = Signer::request(keys().named("ns2.example").unwrap().clone());
            let request = signed(&mut sender, &asked().finish(), NOW);
            let told = tell_of(&request, &keys(), late).unwrap();
            let tsig = Tsig::read(&told).unwrap().unwrap();
            assert!(sender.verify_answer(&told, &tsig, NOW).is_ok());
        }
        let (_, client) = sign(NOW);
        let mut unsigned = Message::from_octets(response()).unwrap();
        let refused = client.answer(&mut unsigned, Time48::from_u64(NOW));
        assert!(matches!(refused, Err(ValidationError::ServerUnsigned)));
    }

    proptest! {
        #[test]
        fn no_changed_octet_is_believed(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut signer = Signer::request(keys().named("ns2.example").unwrap().clone());
            let mut request = signed(&mut signer, &asked().finish(), NOW);
            let at = at.index(request.len());
            request[at] ^= 1 << bit;
            // The id may change on the way: the original one is signed (RFC 8945 §4.2). Letters of the key's and
            // the algorithm's name are compared without case.
            let tsig_start = request.len() - signer.room();
            if at >= 2 && let Ok(Some(tsig)) = Tsig::read(&request) {
                let is_case = at > tsig_start && bit == 5;
                prop_assert!(is_case || verify(&request, &tsig, &keys(), NOW).is_err(), "octet {at}");
            }
        }
    }
}
