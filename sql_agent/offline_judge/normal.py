"""The one normal form in which the offline judge reads questions, references and answers, Chinese and English.

Guarantees: pure functions, linear in the text's length; what a reader does not see changes nothing; the same amount is
the same text (0.5g, 500毫克; <30, 低于30; 每天两次, bid), and so are the words of `SAME` and traditional characters.
Not covered: other synonyms. None of the words led back may be a part of a medical name.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

HAN = r"[\u3400-\u9fff]"
NOTHING_FOUND = re.compile(
    r"(?<!有)(?:没有?|未能?|查无|并无|暂无|无)(?:检索到|查询到|查到|找到|发现|收录|记载|相关|符合|对应|匹配)"
    r"|no (?:record|match|result)\w*"
)
CIRCLED = re.compile(r"[\u2460-\u2473\u2474-\u2487\u2776-\u277f]")
LIST_NUMBER = re.compile(
    r"(?:^|(?<=[\s;,。:、]))(?:\(?\d{1,2}(?:[.)、]|\)、)(?!\d)|[-*•·])(?=\s+\S|[^\s\d])", re.MULTILINE
)
COUNTER = "[种个款项条类次片粒位例]"
# What numbers measure. A bare 周, 月 or 年 after a numeral may begin another word (四周围, 二月).
MEASURE = "(?:毫克|微克|毫升|千克|公斤|克|升|小时|分钟|天|周(?!围|边)|个月|年|岁|倍|支|袋|丸|瓶|盒|粒|片)"
NUMERAL = re.compile(
    rf"[二两三四五六七八九十][一二三四五六七八九十]{{0,2}}(?={COUNTER}|{MEASURE})"
    rf"|(?<=[共有仅只])一(?={COUNTER})|一(?=个月|周(?!围)|小时)"
)
DECIMAL_NUMERAL = re.compile(rf"([零一二三四五六七八九])点([零一二三四五六七八九]{{1,3}})(?={MEASURE})")
# English ways to forbid a drug. None of them is a "not" that denies a contraindication.
ENGLISH_BAN = re.compile(r"\b(?:(?:do|must|should|may|can) ?not|never) (?:be )?(?:used?|take|taken|given?)\b")
NUMBER_WORDS = {
    **{"one": "1", "two": "2", "three": "3", "four": "4", "five": "5"},
    **{"six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10"},
}
NUMBER_WORD = re.compile(rf"\b({'|'.join(NUMBER_WORDS)})\b(?=[ -](?:hour|day|week|month|year|time|dose|tablet|drug))")
DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"两": 2}
# Characters that are not seen (zero width, direction, soft hyphen, variants of the one before) and one that passes for
# another: what a reader does not see must not change what is read.
UNSEEN = re.compile(
    r"[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
LOOKALIKES = str.maketrans("旡", "无")
# Traditional characters of medical answers; the data is in simplified ones. Not covered: words that differ.
TRADITIONAL = str.maketrans(
    "無腎藥應癥療對過壓絞穩變異頭暈噁嘔瀉腸潰瘍鈉鉀鈣鐵鎂鋅類風濕關節顆膠劑針錠規術後婦兒齡嚴輕減並併聯長監測檢驗視聽覺"
    "網腦塊腫細膚癢質熱濃縮張緊緩釋傷創損壞亂調導與從現這個們來時間開說話讀寫為於產業務單雙數據庫結論記載詢問題電離營維"
    "護預組織碼環內歷經係統總將當點還進運動靜脈臟臥轉實證診斷別種項條樣狀況資訊準備處義師醫雜蟲絲鏈黴氣鳴悶啞乾癟癲癇驚"
    "鬱飲餵飽飯補給納鹽遲滯積歸屬適沒輸幹顏極顯鮮見兩體髮發癱瘓陰陽濟廠機構擴縫復複癒纖纈顫喚尋閉層膽竇竅嚥齒齦鎮嗎飢餓"
    "傳軟彎盡儘儲貯溫涼區僅稱屆灣島萬億專門隨順須頻頸領額頓飛馬駕駛騎魚鳥鹼齊龍龜",
    "无肾药应症疗对过压绞稳变异头晕恶呕泻肠溃疡钠钾钙铁镁锌类风湿关节颗胶剂针锭规术后妇儿龄严轻减并并联长监测检验视听觉"
    "网脑块肿细肤痒质热浓缩张紧缓释伤创损坏乱调导与从现这个们来时间开说话读写为于产业务单双数据库结论记载询问题电离营维"
    "护预组织码环内历经系统总将当点还进运动静脉脏卧转实证诊断别种项条样状况资讯准备处义师医杂虫丝链霉气鸣闷哑干瘪癫痫惊"
    "郁饮喂饱饭补给纳盐迟滞积归属适没输干颜极显鲜见两体发发瘫痪阴阳济厂机构扩缝复复愈纤缬颤唤寻闭层胆窦窍咽齿龈镇吗饥饿"
    "传软弯尽尽储贮温凉区仅称届湾岛万亿专门随顺须频颈领额顿飞马驾驶骑鱼鸟碱齐龙龟",
)
UNITS = {"毫克": "mg", "微克": "μg", "毫升": "ml", "千克": "kg", "公斤": "kg", "克": "g", "升": "l", "国际单位": "iu"}
UNITS |= {"摄氏度": "°c", "度": "°c"}
UNIT = re.compile(rf"(?<=[\d/])\s*(?:({'|'.join(UNITS)})|(?:mcg|ug)(?![a-z]))")
# One unit for each kind of amount, so that 0.5g is 500mg. Not before a slash: g/l is a unit of its own.
AMOUNT = re.compile(r"(?<![\d.])(\d{1,9}(?:\.\d{1,9})?)(g|μg|l)(?![a-z/])")
TO_SMALLER = {"g": ("mg", Decimal(1000)), "μg": ("mg", Decimal("0.001")), "l": ("ml", Decimal(1000))}
TIMES = re.compile(r"(?<=[\da-z])\s*[x*×]\s*(?=\d)")
# How often a day, as prescriptions write it.
FREQUENCY = {"qd": "每日一次", "bid": "每日2次", "tid": "每日3次", "qid": "每日4次"}
FREQUENCIES = re.compile(rf"(?<![a-z])(?:{'|'.join(FREQUENCY)})(?![a-z])")
# Bounds before a number, by sign or word.
BOUNDS = (
    ("至少", re.compile(r"(?:≥|>=|不[少低小]于|满)\s*(?=\d)")),
    ("不超过", re.compile(r"(?:≤|<=|不[大高多]于|[最至]多)\s*(?=\d)")),
    ("低于", re.compile(r"(?:<|[小少]于|不足|不到)\s*(?=\d)")),
    ("超过", re.compile(r"(?:>|[大高多]于)\s*(?=\d)")),
)
WITHIN = re.compile(r"(?<![\d.])(\d{1,9}(?:\.\d{1,9})?(?:°c|[a-z%]{1,3}|岁|天|周|个月|年|小时)?)及?以([下内上])")
STRENGTH = re.compile(r"每([片粒支瓶袋丸贴])[含为是]{0,2}(\d+(?:\.\d+)?(?:mg|g|μg|ml|iu))(?![/a-z])")

# Other words for the same, each led back to the one that the data uses. None of them is a part of a medical name.
SAME = {
    "升高": "上升 增高 变高 走高",
    "降低": "下降 减低 变低 走低",
    "减少": "变少 下跌",
    "增加": "增多 变多 增大 加大",
    "每日": "每天 一日 一天",
    "每次": "一次 1次",
    "慎用": "谨慎使用 谨慎应用 谨慎服用 小心使用 慎重使用",
    "禁用": "禁止使用 不得使用 不可使用 不能使用 不可以使用 不要使用 不应使用 禁止服用 不得服用 不能服用 不可以服用 "
    "不要服用 不应服用 不能用 不可用 不可以用 不能吃",
    "合用": "一起使用 一起服用 一起用 一起吃 联合使用 联用 同时使用 同时服用 同服 并用",
    "多见于": "常见于 好发于",
    "患者": "病人",
    "引起": "导致 造成 招致",
    "停药": "停止用药 停用药物 停止服用",
    "减量": "减少剂量 降低剂量 剂量减少 减小剂量",
    "监测": "检测 监控",
    "避免": "不宜 不要 切勿 请勿",
    "不得": "不能 不可 不可以 不应 不许 禁止 严禁",
    "无": "没有",
    "无需": "不需要 不需 不必 无须",
    "起始": "开始 起初",
    "餐": "饭",
    "孕妇": "妊娠妇女 妊娠期妇女 怀孕妇女 怀孕的妇女",
    "哺乳期妇女": "哺乳期女性 哺乳妇女 哺乳的妇女",
    "老年人": "老人 老年患者",
    "心力衰竭": "心衰 心脏衰竭 心功能衰竭",
    "心肌梗死": "心梗 心肌梗塞",
    "肾衰竭": "肾衰 肾功能衰竭",
    "肝衰竭": "肝衰 肝功能衰竭",
    "脑卒中": "脑中风",
    "抗菌药": "抗菌药物 抗生素",
    "发热": "发烧",
    "腹泻": "拉肚子",
    "腹痛": "肚子疼 肚子痛",
    "头痛": "头疼",
    "瘙痒": "发痒",
    "遮光": "避光",
    "处": "的地方 地方",
    "饮水": "喝水",
    "戒酒": "不饮酒 不喝酒 禁酒 忌酒",
    "饮酒": "喝酒",
    "利尿剂": "利尿药",
    "renal": "kidney",
    "hepatic": "liver",
    "hypertension": "high blood pressure",
    "myocardial infarction": "heart attack",
    "dyspnea": "shortness of breath",
    "daily": "per day",
}
CANONICAL = {other: word for word, others in SAME.items() for other in re.split(" (?![a-z])", others)}
SYNONYM = re.compile(
    "|".join(rf"\b{word}\b" if word.isascii() else word for word in sorted(CANONICAL, key=len, reverse=True))
)
PLURAL = re.compile(r"(?<![a-z])([a-z]{3,}[^\Wsui\d_])s\b")


def normalise(text: str) -> str:
    """One form for all ways to write a text; its words and amounts are those that the data uses.

    Markdown, list numbers and what is not seen are gone; words that say that nothing was found become the sign for the
    empty set.
    """
    text = CIRCLED.sub(";", text)
    text = UNSEEN.sub("", unicodedata.normalize("NFKC", text.replace("，", ";"))).lower()
    text = text.translate(LOOKALIKES).translate(TRADITIONAL)
    text = re.sub(r"[*_~]{2,}|[#`]", " ", text)
    text = LIST_NUMBER.sub(" ", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<=\d)\s*(?:[-~–到至]|to)\s*(?=\d)", "至", text)
    text = re.sub(rf"(?<=\d)[ \t]+(?=[a-z%°])|(?<={HAN})[ \t]+(?=[a-z\d])|(?<=[a-z\d])[ \t]+(?={HAN})", "", text)
    text = _amounts(text)
    text = PLURAL.sub(r"\1", text)
    text = ENGLISH_BAN.sub("contraindicated", text)
    text = NOTHING_FOUND.sub("∅", text)
    return SYNONYM.sub(lambda match: CANONICAL[match[0]], text)


def _amounts(text: str) -> str:
    """Digits for numerals, signs for words of comparison, and one unit for each kind of amount."""
    for word, bound in BOUNDS:
        text = bound.sub(word, text)
    text = DECIMAL_NUMERAL.sub(lambda match: f"{DIGITS[match[1]]}.{''.join(str(DIGITS[d]) for d in match[2])}", text)
    text = NUMERAL.sub(lambda match: str(_number(match[0])), text)
    text = NUMBER_WORD.sub(lambda match: NUMBER_WORDS[match[0]], text)
    text = UNIT.sub(lambda match: UNITS.get(match[1], "μg"), text)
    text = AMOUNT.sub(_in_smaller_unit, text)
    text = TIMES.sub("×", STRENGTH.sub(r"\2/\1", text))
    text = WITHIN.sub(lambda match: f"{'至少' if match[2] == '上' else '不超过'}{match[1]}", text)
    text = FREQUENCIES.sub(lambda match: FREQUENCY[match[0]], text)
    return text


def _in_smaller_unit(match: re.Match[str]) -> str:
    unit, factor = TO_SMALLER[match[2]]
    return f"{(Decimal(match[1]) * factor).normalize():f}{unit}"


def _number(numeral: str) -> int:
    """The value of a Chinese numeral below 100."""
    tens, ten, ones = numeral.partition("十")
    if not ten:
        return int("".join(str(DIGITS[char]) for char in numeral))
    return 10 * DIGITS.get(tens, 1) + DIGITS.get(ones, 0)
