"""What an answer may put around the facts at no cost: words that carry nothing by themselves, in any sequence.

Guarantees: no entry denies, doubts, permits or forbids, and none names a drug, a disease or a number. `RELATIONS` count
only where the question asks for that one kind of thing. What else is free says exam.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sql_agent.offline_judge.normal import normalise

PHRASES = """
您 你 您好 你好 谢谢 答 答案 回答 根据 提供 参考 经 查询 检索 查 查到 结果 显示 数据库 记录 记载 据记载 资料 原文
写有 写着 写到 写道 如下 以下 中 以上 就是 全部内容 希望对您有帮助 希望对你有帮助 希望以上信息对您有帮助
希望这些信息对您有帮助 如果还想知道别的 如果您还有其他问题 如果还有其他问题 如有其他问题 如需更多信息 如需了解更多
good_news 如有疑问 如有任何疑问 请告诉我 请随时提问 随时告诉我 请随时告诉我 欢迎随时提问 总结 总之
综上 综上所述 首先 其次 第1 第2 第3 和 与 及 以及 还有 同时 另外 此外 其中 分别 依次 包括 包含 含 有
是 为 的 也 都 均 则 而 其 它 等 既 即 该 本 这种 药 药品 药物 疾病 该病 本品 患者 病人 者 人群 名称 字段 内容 序号 编号
项目 方法 方面 共 共计 1共 总共 合计 总数 数量 种 个 款 项 条 类 主要 从而 并 并且 而且 且 采用 由 对比 具体 有关
因为 所以 因此 典型 具有 具备 症见 表现为 while whereas respectively in_addition by_contrast
also furthermore moreover besides additionally drug medicine disease condition patient patients
the answer is are and of include includes hello according to database in it name field value item content details
"""
RELATIONS = [  # how a question asks for one kind of thing, and how a sentence says it
    ("适应|适用|用途|主治|用于(?!.*[岁剂量])|目的", "可 用于 适用于 治疗 适应症"),
    ("不良反应|副作用|副反应|不适反应", "可 会 引起 出现 可能引起 可能出现 可能会 可能的 不良反应 副作用"),
    ("剂量|用量|用法|怎么?样?[吃服用]|如何[吃服用]", "用法用量 用法 用量 剂量 服用"),
    ("禁", "禁用 忌用 禁忌 禁用于"),
    ("表现|症状", "表现 症状 常见"),
    ("治疗|救治|处理", "可采用 治疗"),
    ("鉴别|区分|混淆", "需 需要 相鉴别 鉴别"),
    (r"\b(?:indicat|used? for\b|uses?\b)", "used_for mainly_used_for indicated_for used_to_treat"),
    (
        r"\b(?:dos(?:e|age|ing)|how (?:is|are|should|do|does|often|much) .*(?:given|taken?|used?|appl(?:y|ied)))\b",
        "dosage dose given take taken",
    ),
    (r"\b(?:side.?effect|adverse)", "may_cause can_cause possible"),
    (r"\b(?:treat|therap)", "treated_with managed_with"),
    (r"\b(?:symptom|sign\b|signs\b)", "people_with may_have presents_with"),
    (r"\bfeature", "offers supports provides"),
]


COLUMNS = [  # how a question asks for a column, and what such columns are called
    (
        "适应|适用|主治|[治管](?:什么|啥|哪)|用途|功效|(?<!副)作用(?!机)|干(?:什么|啥)用|有(?:什么|啥)用"
        r"|\bindicat|\bused? for\b|\btreats?\b|\bfor what\b|\bwhat is .* for$",
        r"适应|适用|主治|功能|用途|功效|作用|\bindication|\buses?\b|purpose",
    ),
    (
        "[用吃服喝]法|用量|剂量|(?:怎么?样?|如何|怎样)(?:[^,;。?]{0,2})[吃喝服用冲涂抹敷打]|[每一1][次天日][吃服用]|几[片粒袋次]|[吃服用]多少"
        r"|\bdos(?:e|age|ing)|\bhow (?:much|often|many) .*(?:take|taken|use|apply|given|give)"
        r"|\bhow (?:do|does|should|is|are|can|to)\b.*(?:take|taken|apply|applied|given|use)\b",
        "用法|用量|剂量|服法|服用方法|使用方法|dos(?:e|age|ing)|administration|directions",
    ),
    (
        r"不良反应|副作用|副反应|不舒服|不适|side.?effect|adverse|\breactions?\b",
        "不良反应|副作用|副反应|side effect|adverse|reaction",
    ),
    (
        "禁|不(?:能|可以?|宜|该)使?[吃用服]|哪些人不|什么人不"
        r"|contraindicat|\b(?:must|should|can|may)(?: \w+)? (?:not|n't)\b|\bcan ?['’]?t (?:take|use)|\bshould avoid"
        r"|\bnot (?:take|use)",
        "禁忌|禁用|contraindication|do not use",
    ),
    (r"注意|当心|小心|留意|\bwarn|precaution|careful|watch out", "注意|警示|警告|须知|warning|precaution|caution"),
    (
        r"保存|贮藏|储存|存放|怎么放|放在?哪|\bstor(?:e|ed|age|ing)\b|\bkeep\b|\bkept\b",
        "贮藏|保存|储存|存放|storage|store",
    ),
    (r"有效期|保质期|放多久|过期|\bshelf.?life|\bexpir", "有效期|保质期|shelf life|expir"),
    (
        r"成[分份]|含有?(?:什么|哪)|配方|组成|ingredient|\bmade (?:of|from)|\bcontain|composition",
        "成[分份]|组成|配方|处方|ingredient|composition|material|contents",
    ),
    (r"症状|表现|体征|\bsymptom|\bsigns\b", "症状|表现|体征|symptom|sign|presentation"),
    (
        r"病因|原因|为(?:什么|啥|何)会?[得患]|怎么会?得|引起|诱因|\bcauses?\b|\bwhy do(?:es)?\b",
        "病因|原因|诱因|机制|cause|etiology|aetiology",
    ),
    (
        r"治疗|(?:怎么|如何|怎样)治|疗法|怎么办|\btreat(?:ed|ment|ing)\b|\btherap|\bmanaged\b",
        "治疗(?!费)|疗法|处理|treatment|therapy|management",
    ),
    ("检查|化验|查(?:什么|哪)", "检查|化验|examination"),
    (r"诊断|确诊|\bdiagnos|\btests?\b", "诊断|diagnosis|tests?|investigation"),
    (r"预防|防止|怎么防|才能不|避免[得患]|\bprevent", "预防|prevention"),
    (r"预后|以后会|能不能好|治愈|好不好治|\bprognosis|\boutlook", "预后|治愈|转归|prognosis|outlook"),
    (r"并发|\bcomplication", "并发|complication"),
    (r"传染|传播|传给|\bcontagious|\btransmi", "传染|传播|contagious|transmission"),
    ("科室|挂.{0,3}[号科]|(?:什么|哪个?)科", "科室|就诊|department"),
    ("人群|多发于|易感|好发于", "人群|易感|population"),
    ("作用机|机理|药理|毒理", "药理|毒理|机理|作用机|mechanism|pharmacolog"),
    ("鉴别|区分|混淆", "鉴别"),
    (
        r"相互作用|[1一][起同][吃用服]|同服|合用|\binteract|\btogether with|\bcombined? with",
        "相互作用|合用|interaction",
    ),
    (r"过量|[吃服]多了|\boverdos", "过量|overdos"),
    (r"\bcosts?\b|\bprice|\bfees?\b|\bhow much (?:is|are|does)|\bcharge", "cost|price|fee|charge|tuition"),
    (r"^when\b|, when\b|\band when\b|\bwhat time|\bschedule|\bhours\b", "schedule|time|hours|dates?|when|day"),
    (r"\bwhere\b|\blocat(?:ed|ion)|\baddress\b", "location|where|address|room|venue|place"),
    (r"prerequisite|\bbefore (?:taking|enrol|i can)|\bbeforehand", "prerequisite|requirement"),
    (r"\bwarrant|\bguarantee", "warranty|guarantee"),
    (r"\bweigh|\bheavy\b", "weight"),
    (r"\bdimension|\bsize\b|\bhow (?:big|wide|tall|deep)\b", "dimension|size"),
    (r"\bnois|\bloud|\bquiet|\bdecibel", "noise|sound"),
    (r"\bclean|\bmaint|\bwash|\bcare for", "clean|maintenance|care|wash"),
    (r"\bcancel|\brefund", "cancel|refund"),
    (r"\breturn(?:s|ed|ing)?\b", "return"),
    (
        r"\bwho (?:teaches|runs|leads|gives)|\binstructor|\blecturer|\bteacher",
        "instructor|teacher|lecturer|tutor|staff",
    ),
    (r"\bassess|\bgrad(?:e|ed|ing)\b|\bexam", "assess|grading|exam|evaluation"),
    (r"\bpopulation|\binhabitants|\bhow many people (?:live|are)", "population|inhabitants"),
    (r"\belevation|\baltitude|\bhow high", "elevation|altitude|height"),
    (r"\bclimate|\bweather", "climate|weather"),
]


AUDIENCES = [  # for whom, where nothing says what of them
    ("怀孕|孕妇|妊娠|喂奶|哺乳", "孕|妊娠|哺乳"),
    (r"小孩|孩子|儿童|宝宝|婴|小儿|(?<!\d)1?\d岁", "儿童|小儿"),
    (r"老[人年]|岁数大|[6-9]\d岁", "老年"),
    (r"\bpregnan|\bbreast-?feeding|\bnursing", "pregnan|lactation|breast|nursing"),
    (r"\bchild|\bkids?\b|\binfant", "child|pa?ediatric"),
    (r"\belderly|\bolder", "geriatric|elderly|older"),
]


def is_related(column: str, asks: str, relations: Sequence[tuple[str, str]] = COLUMNS) -> bool:
    """Whether a text asks for what such columns are for."""
    return any(re.search(wanted, asks) and re.search(called, column) for wanted, called in relations)


def called_as(column: str) -> set[str]:
    """What columns of this kind are called."""
    names = (called for _, called in COLUMNS if re.search(called, column))
    return {name for called in names for name in called.split("|") if re.fullmatch(r"[\w ]{2,}", name)}


def phrases(text: str) -> list[str]:
    """The phrases of a list in normal form, whose words are joined by a low line."""
    return [normalise(phrase.replace("_", " ")) for phrase in text.split()]
