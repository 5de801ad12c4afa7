"""Words of keys that mean secrets, words that take that meaning away, words of plain sentences."""

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A part of a key, in lower case, that means a secret: auth of `x-auth`, pin of `cardPin`.
SECRET: Final = _words(
    "accesskey apikey auth authdata authinfo authkey authorization authparams bearer cookie"
    " cookies cred credential credentials creds cvv dbpass encryptionkey jaas jsessionid jwt"
    " mypass oauth otp pass passcode passphrase passwd password passwords passwort phpsessid"
    " pin privatekey pw pwd rootpass secret secretkey secrets sessid session sessionid"
    " sessions sharedkey sid sig signature signatures signingkey sslpass token tokens userpass"
    " csrf xsrf hmac psw totp"
    # A password in other languages.
    " contrasena contraseña haslo hasło heslo kennwort losenord lösenord mdp motdepasse parola"
    " passe salasana senha wachtwoord пароль 密码 密碼"
)
# The same at the end of a part whose words are not told apart: dbpassword, authtoken.
SECRET_ENDS: Final = (
    *("password", "passwords", "passwd", "passphrase", "secret", "token", "tokens", "credential"),
    *("credentials", "apikey", "cookie", "privatekey", "secretkey", "accesskey", "sessionid"),
    *("authorization", "пароль", "密码", "密碼"),
)
# Two parts that mean a secret only together.
SECRET_PAIRS: Final = frozenset(
    (first, second)
    for second, firsts in {
        "config": "jaas",
        "code": "pass mfa otp",
        "data": "auth",
        "key": "access account api auth client consumer encryption hmac license"
        " master private secret session shared signing ssh storage",
        "keys": "access api encryption private secret session signing",
        "params": "auth",
        "phrase": "pass",
        "response": "saml",
        "verifier": "code oauth",
        "word": "pass",
    }.items()
    for first in firsts.split()
)
# The last part of a key that says something about a secret and not the secret: tokenCount.
HARMLESS: Final = _words(
    "age alg algorithm allowed attempts audience behavior bits bucket budget bytes cache"
    " category class classname config count counter created date disabled duration enabled"
    " encoding endpoint error errors exists expiration expired expires expiry failed failure"
    " failures file filename format hint hits host hours index interval invalid issued issuer"
    " kind latency length level lifetime limit listener location max method methods min"
    " minutes missing mode ms name names namespace ns num number path period plugin policy"
    " port present provider providers rate reason refresh remaining requests required"
    " requirements result retries role roles rotation scheme scope scopes sec seconds server"
    " size source start state status strength supported time timeout timestamp total ttl type"
    " types unit uri url usage used user username users valid validation validity version"
)
# Words of sentences that stand where a secret could: behind `token: `, `Bearer `.
ORDINARY: Final = frozenset(
    word.encode()
    for word in _words(
        "a absent access all already an and any are as auth authenticated authentication"
        " authorization authorized backed bad be been broken by can cannot cause could"
        " credential credentials decode denied did disabled does empty enabled error exception"
        " expected expired fail failed failure false for forbidden format found from had has"
        " have header http https illegal in incorrect internal invalid is it jws jwt key"
        " length login malformed may method mismatch missing must no none not nothing null of"
        " off ok on only or out parse password permission please provided realm received"
        " rejected request required scheme secret server should signature signed specified"
        " string the there this to token tokens too true type unable unauthorized undefined"
        " unexpected unknown unsigned unsupported use used user username valid value"
        " verification verify was were wrong you your"
    )
)
